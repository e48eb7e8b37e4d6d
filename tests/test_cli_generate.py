"""Text to image from the command line, with the embedded prior."""

import json
from typing import Any

import torch
from click.testing import CliRunner

from aps_cli.main import main
from aps_core.imaging import images
from aps_core.tasks import GenerateSpec, Inputs, run
from tests.engines import image_engine


def aps(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_generation_is_reproducible_by_seed(tmp_path):
    size = ("--width", 72, "--height", 40, "--steps", 3, "--device", "cpu")
    out = tmp_path / "drawn.png"
    done = aps("generate", "a red flower", *size, "--num-samples", 2, "-o", out)
    assert done.exit_code == 0, done.output
    first, second = (
        images.open_image(path.read_bytes()) for path in (out, tmp_path / "drawn-sample-2.png")
    )
    assert (first.width, first.height) == (second.width, second.height) == (72, 40)
    assert first.digest() != second.digest()
    sidecar = json.loads(out.with_suffix(".json").read_text())
    assert sidecar["spec"]["prompt"] == "a red flower"
    assert sidecar["misfit"] == []
    again = tmp_path / "again.png"
    aps("generate", "a red flower", *size, "--num-samples", 2, "-o", again)
    assert again.read_bytes() == out.read_bytes()
    assert aps("generate", "x", "--prior", "embedded_text").exit_code == 2


def test_a_stopped_run_continues_with_the_same_tokens_and_the_prompt_matters():
    engine = image_engine("embedded")
    spec = GenerateSpec(
        prompt="a red flower", width=48, height=48, sampler={"steps": 4, "guidance_scale": 2.0}
    )
    saved = []
    whole: Any = run(spec, Inputs(), engine, lambda progress: saved.append(progress.checkpoint()))
    resumed: Any = run(spec, Inputs(), engine, resume=saved[1])
    assert resumed.resumed_from_step == 2
    assert torch.equal(resumed.codes_BL, whole.codes_BL)
    other: Any = run(spec.model_copy(update={"prompt": "a night sky"}), Inputs(), engine)
    assert not torch.equal(other.codes_BL, whole.codes_BL)
