"""Documents to train on: what is withheld, tiles, crops, and the files of the two stages."""

import json
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from aps_core.priors.mmada.network import MMaDAPrior, load_mmada
from aps_core.runtime.memory import magvit_decoder
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2
from aps_core.types import MASK
from training.documents import sources
from training.documents.crops import DocumentCrops
from training.documents.fonts import Face
from training.documents.pages import PageMaker, wrap
from training.documents.panels import PanelMaker
from training.prior import flipped
from training.prior_network import (
    build,
    config_for,
    take_layers,
    take_tables,
    text_tokenizer,
)
from training.prior_network import export as export_prior
from training.stream import Draw, stream
from training.tokenizer import export, shape, take_encoder

EXAMPLES = Path(__file__).parents[2] / "examples" / "documents"
LINES = ["The lantern was lit and nobody noticed the stranger at the door of the inn."] * 3


@pytest.fixture(scope="module")
def faces():
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [Face(folder / f"DejaVu{n}.ttf", n, n) for n in ("Sans", "Serif", "SansMono")]


def test_splits_share_no_source():
    for table in (sources.FONTS, sources.SCREENS, sources.SCAN_PAGES):
        train, validation, evaluation = (
            set(table[s]) for s in ("train", "validation", "evaluation")
        )
        assert not train & validation
        assert not train & evaluation
        assert not validation & evaluation
    assert len(sources.FONTS["evaluation"]) >= 10
    assert len(sources.SCAN_PAGES["evaluation"]) >= 10


def test_pages_are_text_in_many_sizes(faces):
    pages = [PageMaker(faces, LINES, 256, seed).page() for seed in range(12)]
    assert all(page.shape == (256, 256) and page.dtype == np.uint8 for page in pages)
    coverage = [page.mean() / 255 for page in pages]
    assert max(coverage) < 0.6
    assert sum(c > 0.01 for c in coverage) >= 10
    assert np.array_equal(pages[3], PageMaker(faces, LINES, 256, 3).page())


def test_lines_fit_the_column(faces):
    font = faces[0].at(12)
    lines = wrap(LINES[0], font, 120)
    assert " ".join(lines) == LINES[0]
    assert len(lines) > 2
    assert all(font.getlength(line) <= 120 for line in lines)


def test_panels_are_coloured(faces):
    panel = PanelMaker(faces, LINES, 256, 1).panel()
    assert panel.shape == (256, 256, 3)
    assert len(np.unique(panel.reshape(-1, 3), axis=0)) > 5


def tiles():
    rng = np.random.default_rng(0)
    ink = np.kron(rng.integers(0, 2, (4, 32, 32)), np.ones((1, 16, 16))).astype(np.uint8) * 255
    return ink, np.repeat(255 - ink[..., None], 3, 3)


def crops(seed):
    ink, colour = tiles()
    return DocumentCrops([ink], [colour], seed)


def test_crops_vary_and_repeat():
    x = crops(1).batch(24, 64)
    assert x.shape == (24, 3, 64, 64)
    assert x.min() >= -1
    assert x.max() <= 1
    assert torch.equal(x, crops(1).batch(24, 64))
    assert not torch.equal(x, crops(2).batch(24, 64))
    grey = [bool((c == c[:1]).all()) for c in x]
    assert 0 < sum(grey) < 24
    levels = [len(c.unique()) for c in x]
    assert min(levels) < 300 < max(levels)  # flat paper and lit paper


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_repeats_and_its_workers_differ(tmp_path, workers):
    for name, array in zip(("ink-000", "colour-000"), tiles(), strict=True):
        np.save(tmp_path / f"{name}.npy", array)

    def sampler(seed: int) -> Draw:
        return partial(DocumentCrops.of(tmp_path, seed).batch, size=32)

    first, again = (stream(sampler, 5, workers) for _ in range(2))
    drawn = [first(count) for count in (3, 11, 3)]
    assert all(torch.equal(x, again(len(x))) for x in drawn)
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], stream(sampler, 6, workers)(3))


def test_workers_are_not_in_the_group_of_their_run():
    """Which Ctrl-C and ``timeout`` signal: the last step needs its crops."""
    before = set(multiprocessing.active_children())
    draw = stream(lambda seed: lambda count: torch.full((count,), seed), 5, 1)
    assert draw(1) == 5000
    (worker,) = set(multiprocessing.active_children()) - before
    assert os.getpgid(worker.pid) != os.getpgid(0)


def test_flips_disturb_at_most_their_share():
    codes = torch.randint(0, 4096, (8, 1024), generator=torch.Generator().manual_seed(0))
    none = flipped(codes, 12, 0.0, torch.Generator().manual_seed(1))
    some = flipped(codes, 12, 0.2, torch.Generator().manual_seed(1))
    assert torch.equal(none, codes)
    assert some.min() >= 0
    assert some.max() < 4096
    changed = (
        sum(((some ^ codes) >> bit & 1).sum().item() for bit in range(12)) / codes.numel() / 12
    )
    assert 0.03 < changed < 0.2


@pytest.fixture
def tokenizer(tmp_path):
    torch.manual_seed(0)
    model = Magvit2(shape(ch=64, blocks=1, decoder_ch=32, decoder_blocks=1, bits=4))
    export(model, tmp_path)
    return tmp_path


def test_the_decoder_has_its_own_width(tokenizer):
    loaded = load_magvit(tokenizer, "cpu", torch.float32)
    assert loaded.net.encoder.conv_in.out_channels == 64
    assert loaded.net.decoder.conv_out.in_channels == 32
    x = torch.rand(1, 3, 16, 32) * 2 - 1
    codes = loaded.encode(x)
    assert codes.shape == (1, 32)
    assert loaded.decode(loaded.codebook_KD[codes], (4, 8)).shape == x.shape
    narrow = magvit_decoder(tokenizer).saved
    config = json.loads((tokenizer / "config.json").read_text())
    del config["decoder_ch"]
    (tokenizer / "config.json").write_text(json.dumps(config))
    assert magvit_decoder(tokenizer).saved == pytest.approx(2 * narrow)


HALF_DECIDED: dict[str, Any] = {
    "grid": (32, 32),
    "mask_fraction": 0.5,
    "condition": "",
    "guidance_scale": 0.0,
}


def half_decided() -> torch.Tensor:
    z_BL = torch.full((1, 1024), MASK)
    z_BL[0, :500] = 3
    return z_BL


TEXT = text_tokenizer([])
CONFIG = config_for(TEXT.get_vocab_size(), bits=4, width=64, layers=1)


def untrained_prior(loaded: MagvitTokenizer) -> MMaDAPrior:
    return build(CONFIG, loaded, TEXT, torch.device("cpu"))


def logits_of(prior: MMaDAPrior) -> torch.Tensor:
    """Logits of a prior in training, whose tables are computed at each use."""
    rows = slice(prior.layout.image_offset, None)
    prior.head_KD = prior.model.lm_head.weight[rows].detach()
    return prior.logits(half_decided(), **HALF_DECIDED)


@pytest.fixture
def trained(tokenizer, tmp_path):
    """A prior in training, and what it exports, loaded."""
    torch.manual_seed(0)
    loaded = load_magvit(tokenizer, "cpu", torch.float32)
    prior = untrained_prior(loaded)
    folder = tmp_path / "prior"
    folder.mkdir()
    export_prior(prior.model, prior, CONFIG, folder)
    return prior, load_mmada(folder, loaded, torch.device("cpu"), torch.float32)


def test_the_exported_prior_is_the_trained_one(trained):
    prior, again = trained
    expected = logits_of(prior)
    assert torch.allclose(again.logits(half_decided(), **HALF_DECIDED), expected, atol=2e-2)
    assert expected.std() > 0.05


def test_a_prior_starts_where_another_one_ended(trained):
    _, other = trained
    torch.manual_seed(1)
    prior = untrained_prior(other.tokenizer)
    expected = other.logits(half_decided(), **HALF_DECIDED)
    assert not torch.allclose(logits_of(prior), expected, atol=2e-2)
    take_layers(prior.model, other.model)
    assert not torch.allclose(logits_of(prior), expected, atol=2e-2)  # its tables are its own
    take_tables(prior.model, other.model)
    assert torch.allclose(logits_of(prior), expected, atol=1e-4)


def test_a_tokenizer_starts_with_the_codes_of_another_one():
    torch.manual_seed(0)
    small = Magvit2(shape(ch=32, blocks=1, decoder_ch=32, decoder_blocks=1, bits=4))
    large = Magvit2(shape(ch=32, blocks=3, decoder_ch=64, decoder_blocks=2, bits=4))
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    assert not torch.allclose(large.encoder(x), small.encoder(x))
    take_encoder(large, small)
    assert torch.allclose(large.encoder(x), small.encoder(x), atol=1e-6)
    with pytest.raises(ValueError, match="more than blocks"):
        take_encoder(Magvit2(shape(32, 1, 32, 1, 4)), large)


def test_the_withheld_pages():
    pictures = {p.stem: p for p in EXAMPLES.glob("*.png")}
    assert sum(p.stat().st_size for p in pictures.values()) < 1_500_000
    for kind in ("page", "scan", "screen"):
        assert sum(name.startswith(f"{kind}-") for name in pictures) == 10
    origin = json.loads((EXAMPLES / "sources.json").read_text())
    assert origin.keys() == pictures.keys()
    texts = json.loads((EXAMPLES / "texts.json").read_text())
    assert {f"font: fonts-{name.removeprefix('page-')}" for name in texts} == {
        source for source in origin.values() if source.startswith("font: ")
    }
    for name, source in origin.items():
        with Image.open(pictures[name]) as image:
            assert 128 <= min(image.size) == max(image.size) <= 256
        package = source.removeprefix("font: ").split(",")[0]
        allowed = (*sources.FONTS["evaluation"], *sources.SCREENS["evaluation"], sources.SCANS)
        assert package in allowed
    assert all(texts.values())
