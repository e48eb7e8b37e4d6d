"""Parity fixtures, from ``tests/fixtures`` or the folder ``APS_PARITY_DIR``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(os.environ.get("APS_PARITY_DIR", Path(__file__).parents[1] / "fixtures"))


class Fixture:
    """A folder with outputs of an original implementation, its configuration and weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self, name: str = "config.json") -> Any:
        return json.loads((self.folder / name).read_text())

    def arrays(self, name: str = "expected.npz") -> dict[str, torch.Tensor]:
        with np.load(self.folder / name) as stored:
            return {key: torch.from_numpy(stored[key]) for key in stored.files}


@pytest.fixture(scope="session")
def parity() -> Callable[[str], Fixture]:
    """Opens a fixture folder by name; skips the test if ``APS_PARITY_DIR`` does not contain it."""

    def open_fixture(name: str) -> Fixture:
        folder = FOLDER / name
        if not folder.is_dir():
            if "APS_PARITY_DIR" not in os.environ:
                raise FileNotFoundError(folder)
            pytest.skip(f"{folder} is not there")
        return Fixture(folder)

    return open_fixture
