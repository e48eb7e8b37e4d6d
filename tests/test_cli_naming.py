"""Errors name options and files, in place of the fields of a job."""

from pathlib import Path

import click
import pytest

from aps_cli.main import main
from aps_cli.naming import in_options


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("operator.factor: Input should be 2 (given: 3)", "for '--factor': Input should be 2"),
        ("/operator/sigma: Too large; /sigma: Too small", "for '--blur-sigma': Too large; "),
        ("/sampler/steps: Too large", "Invalid value for '--steps': Too large"),
        ("/operator/type: Unknown", "Invalid value for '--operator': Unknown"),
        ("/stop/0: Too long", "/stop/0: Too long"),
        ("One of these would fit: sampler.steps 9, num_samples 2.", "--steps 9, --num-samples 2."),
        (
            "Operator 'jpeg' takes no mask; leave the 'mask' picture out.",
            "leave the --mask picture",
        ),
        ("There is no such field; did you mean 'sampler.steps'?", "did you mean --steps?"),
        ("'image': The picture is empty.", "photo.png: The picture is empty."),
        ("'mask': The picture is empty.", "mask.png: The picture is empty."),
        ("Send an API key: 'Authorization: Bearer aps_...'.", "key: --api-key or APS_API_KEY."),
        ("'/home/me/working_size.png' exists.", "'/home/me/working_size.png' exists."),
    ],
)
def test_fields_are_named_as_options(message, told):
    with click.Context(main.commands["restore"], info_name="restore") as ctx:
        ctx.params = {"image": ([Path("photo.png")],), "mask": Path("mask.png")}
        assert told in in_options(message, ctx)


def test_one_of_several_pictures_is_named_elsewhere():
    with click.Context(main.commands["restore"], info_name="restore") as ctx:
        ctx.params = {"image": ([Path("a.png"), Path("b.png")],)}
        assert in_options("'image': The picture is empty.", ctx) == "The picture is empty."
