"""The registry: names, late registrations, paths in errors, schemas."""

import subprocess
import sys
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from aps_core.capabilities import describe
from aps_core.errors import InvalidSpec
from aps_core.registry import AnyOf, Spec, explain


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


class Shelf(BaseModel):
    label: Annotated[str, Field(min_length=1)] | tuple[Annotated[int, Field(ge=0)], ...] = "x"
    height: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    jars: tuple[Apple, ...] = Field((), min_length=1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"label": ""}, "label: String should have at least 1 character (given: '')"),
        ({"label": [-1]}, "label.0: Input should be greater than or equal to 0 (given: -1)"),
        ({"label": None}, "label: Input should be a valid string or Input should be a valid list"),
        ({"height": -1}, "height: Input should be greater than or equal to 0 (given: -1)"),
        ({"height": []}, "height: Input should be a valid number or Input should be 'auto'"),
        ({"jars": "x"}, "jars: Input should be a valid list (given: 'x')"),
        ({"jars": []}, "jars: List should have at least 1 item after validation, not 0"),
        ({"jars": [7]}, "jars.0: Input should be an object (given: 7)"),
    ],
)
def test_errors_are_explained_in_words_of_json(fields, words):
    with pytest.raises(ValidationError) as caught:
        Shelf(**fields)
    assert explain(caught.value).startswith(words)


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
