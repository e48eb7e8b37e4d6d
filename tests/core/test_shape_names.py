"""The check of shapes against names finds what it should."""

import pytest
import torch

from tests.core.shape_names import CORE, checked

SOURCE = """
def follow(z_BL, phi_BLK):
    x_B3HW = phi_BLK.new_zeros(len(z_BL), 3, 4, 5)
    return x_B3HW
"""


def function(source):
    """The first function of a source text, as if it stood in the library."""
    names = {}
    exec(compile(source, f"{CORE}/made_up.py", "exec"), names)
    return names["follow"]


def test_right_shapes_pass_and_are_counted():
    with checked() as watch:
        function(SOURCE)(torch.zeros(2, 3), torch.zeros(2, 3, 4))
        function(SOURCE)(torch.zeros(2, 3), torch.zeros(1, 3, 4))  # to be broadcast
    assert watch.names == 6


@pytest.mark.parametrize(
    ("z", "phi", "source", "words"),
    [
        ((2, 3, 1), (2, 3, 4), SOURCE, r"z_BL has the shape \(2, 3, 1\)"),
        ((2, 3), (2, 5, 4), SOURCE, r"phi_BLK has the shape \(2, 5, 4\), but L is 3"),
        ((2, 3), (2, 3, 4), SOURCE.replace(", 3, 4", ", 2, 4"), "x_B3HW .* but 3 is 3"),
    ],
)
def test_wrong_shapes_are_named(z, phi, source, words):
    with pytest.raises(AssertionError, match=words), checked():
        function(source)(torch.zeros(z), torch.zeros(phi))
