"""The documents prior that is shipped: what its model card says, and when it is used."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aps_cli.main import main
from aps_core import evaluation
from aps_core.errors import InvalidSpec
from aps_core.evaluation.metrics import psnr
from aps_core.priors import trained_on
from aps_core.priors.embedded.documents import EmbeddedDocumentsPrior
from aps_core.runtime.engine import ImageEngine
from aps_core.types import MASK
from benchmarks.documents import middles

PAGES = Path(__file__).parents[2] / "examples" / "documents"


@pytest.fixture(scope="module")
def engine():
    return ImageEngine.load("embedded_documents")


def test_round_trip_of_withheld_pages_is_sharper_than_the_photographs_tokenizer_s(engine):
    x = torch.stack([page for _, page in middles(PAGES, 3)])
    gains = []
    for truth in x:
        values = [
            psnr(evaluation.round_trip(each, truth), truth[None]).mean()
            for each in (engine, ImageEngine.load("embedded"))
        ]
        gains.append(values[0] - values[1])
    assert torch.stack(gains).mean() > 3


def test_the_prior_knows_paper(engine):
    """Beside blank paper it expects blank paper."""
    blank = engine.prior.tokenizer.encode(torch.ones(1, 3, 128, 128))
    z_BL = blank.clone()
    z_BL[0, 2080:2100] = MASK
    logits = engine.prior.logits(
        z_BL, grid=(64, 64), mask_fraction=0.02, condition="", guidance_scale=0.0
    )
    hidden = logits[0, 2080:2100].log_softmax(-1)
    assert hidden.gather(1, blank[0, 2080:2100, None]).mean() > -2


def test_it_takes_no_prompt():
    with pytest.raises(InvalidSpec, match="takes no prompt"):
        EmbeddedDocumentsPrior().check_prompt("a page of text")


def test_priors_are_chosen_by_what_they_were_trained_on():
    assert trained_on("documents") == "embedded_documents"
    assert trained_on("documents", ["embedded", "embedded_text"]) is None
    assert trained_on("photographs", ["embedded_text", "vq_diffusion"]) == "vq_diffusion"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["documents/page-karla.png"], True),
        (["documents/page-karla.png", "--prior", "embedded"], False),
        (["photos/coffee.png"], False),
    ],
)
def test_the_command_restores_documents_with_it_and_says_so(tmp_path, words, said):
    quick = ["--operator", "denoise", "--steps", "1", "--inner-steps", "1", "--working-size", "64"]
    done = CliRunner().invoke(
        main,
        ["restore", str(PAGES.parent / words[0]), *words[1:], *quick, "-o", f"{tmp_path}/x.png"],
    )
    assert done.exit_code == 0, done.output
    assert ("prior 'embedded_documents' was trained on pages" in done.stderr) is said
    sidecar = (tmp_path / "x.json").read_text()
    assert ('"embedded_documents"' in sidecar) is said
