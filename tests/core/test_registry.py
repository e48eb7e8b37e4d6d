"""The registry: names, late registrations, paths in errors, schemas."""

import subprocess
import sys
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ValidationError

from aps_core.capabilities import describe
from aps_core.errors import InvalidSpec
from aps_core.registry import AnyOf, Spec


class FruitSpec(Spec, family=True):
    """A family for these tests."""


class Apple(FruitSpec):
    """Grows on trees."""

    type: Literal["apple"] = "apple"
    weight: float = 0.2


class Basket(BaseModel):
    fruit: Annotated[FruitSpec, AnyOf(FruitSpec)]


def test_names():
    assert FruitSpec.named("apple") is Apple
    with pytest.raises(InvalidSpec, match="There is no fruit 'pear'; known: apple"):
        FruitSpec.named("pear")
    with pytest.raises(TypeError, match="'apple' is registered twice"):

        class Other(FruitSpec):
            type: Literal["apple"] = "apple"


def test_a_field_accepts_later_registrations():
    class Cherry(FruitSpec):
        """Comes in pairs."""

        type: Literal["cherry"] = "cherry"

    try:
        assert isinstance(Basket(fruit={"type": "cherry"}).fruit, Cherry)
        assert Basket(fruit=Cherry()).model_dump() == {"fruit": {"type": "cherry"}}
    finally:
        del FruitSpec.family["cherry"]


@pytest.mark.parametrize(
    ("fruit", "place", "words"),
    [
        ({"type": "apple", "weight": "heavy"}, ("fruit", "weight"), "valid number"),
        ({"type": "apple", "colour": "red"}, ("fruit", "colour"), "not permitted"),
        ({"type": "pear"}, ("fruit",), "known: apple"),
        ({"type": 3}, ("fruit",), "known: apple"),
        ("apple", ("fruit",), "object with a 'type'"),
        ({"type": "apple", "weight": float("nan")}, ("fruit", "weight"), "finite"),
    ],
)
def test_errors_name_the_field(fruit, place, words):
    with pytest.raises(ValidationError) as caught:
        Basket(fruit=fruit)
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert words in error["msg"]


def test_specs_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Apple().weight = 1.0  # type: ignore[misc]


def test_capabilities_list_all_operators_without_torch():
    names = [operator["type"] for operator in describe()["operators"]]
    assert {
        "super_resolution",
        "gaussian_blur",
        "motion_blur",
        "inpainting",
        "hdr",
        "denoise",
        "jpeg",
        "compose",
    } <= set(names)
    code = (
        "import sys; from aps_core.capabilities import describe; describe(); assert 'torch' not in"
        " sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
