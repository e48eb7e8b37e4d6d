"""Studies of several priors: each fits a measurement by the loss that it recommends."""

from pathlib import Path
from typing import Any

import pytest
import torch

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Setup
from aps_core.evaluation.run import Variant
from research.common import variants
from tests.engines import image_engine


def test_every_prior_fits_by_its_own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: dict[str, str] = {}

    def noted(engine: ImageEngine, setup: Setup, case: Any, *_: Any) -> tuple[Any, int, list[Any]]:
        norms[engine.spec.type] = setup.loss.norm
        return case.truth_CHW[None], 1, []

    monkeypatch.setattr(variants, "run_method", noted)
    names = ("embedded", "embedded_documents", "embedded_photographs")
    engines = {name: image_engine(name) for name in names}
    asked = {name: (engine, Variant("aps")) for name, engine in engines.items()}
    pictures = [("grey", torch.zeros(3, 32, 32))]
    variants.run_variants(asked, pictures, tmp_path / "rows.csv", ("sr4",))
    usual = {name: Setup.recommended(engine).loss.norm for name, engine in engines.items()}
    assert norms == usual
    assert len(set(usual.values())) == 2, "or this would prove nothing"
