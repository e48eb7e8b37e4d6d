"""Documents to train on: what is withheld, tiles, crops, and the files of the two stages."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from aps_core.priors.convolutional.network import (
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.priors.mmada.network import MMaDAPrior, load_mmada
from aps_core.runtime.memory import magvit_decoder
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import MASK
from training.documents import sources
from training.documents.crops import DocumentCrops, stream
from training.documents.fonts import Face
from training.documents.pages import PageMaker, wrap
from training.documents.panels import PanelMaker
from training.documents.prior import ConvolutionalLoss, channel, evidence, softened
from training.documents.prior import export as export_convolutional
from training.documents.prior import validate as validate_prior
from training.prior import flipped
from training.prior_network import (
    build,
    config_for,
    take_layers,
    take_tables,
    text_tokenizer,
)
from training.prior_network import export as export_prior
from training.tokenizer import TokenizerLoss, export, optimizers_for, shape, take_encoder

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
    draw = partial(DocumentCrops.batch, count=2, size=32)
    first, again = (stream(tmp_path, 5, draw, workers) for _ in range(2))
    drawn = [next(first) for _ in range(3)]
    assert all(torch.equal(x, next(again)) for x in drawn)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], next(stream(tmp_path, 6, draw, workers)))


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


def test_evidence_states_truthfully_how_uncertain_it_is():
    """Among bits whose expectation is said to be about t, the mean bit is about t."""
    codes = LookupFreeQuantizer(6).codebook_KD
    generator = torch.Generator().manual_seed(0)
    bits = codes[torch.randint(0, 64, (24, 4096), generator=generator)]
    heard = channel(bits, generator).tanh()
    for low in (-0.9, -0.5, -0.1, 0.1, 0.5, 0.9):
        near = (heard - low).abs() < 0.05
        assert near.sum() > 2000
        assert bits[near].mean() == pytest.approx(low, abs=0.06)


def test_evidence_is_none_or_a_channel_or_a_crude_estimate():
    bits = LookupFreeQuantizer(6).codebook_KD[torch.randint(0, 64, (200, 256))]
    crude = torch.full_like(bits, 7.0)
    heard = evidence(bits, crude, torch.Generator().manual_seed(0))
    none = (heard == 0).flatten(1).all(1)
    softened_ones = (heard == 3.5).flatten(1).any(1)
    assert 0.15 < none.float().mean() < 0.35
    assert 0.4 < softened_ones.float().mean() < 0.6
    assert ((heard == 0) | (heard == 3.5))[softened_ones].all()
    partly = (heard == 0).flatten(1).any(1) & ~none
    assert 0.3 < partly.float().mean() < 0.6


def test_softening_blurs_every_picture_by_its_own_amount():
    stripes = (torch.arange(64) // 4 % 2 * 2.0 - 1).expand(16, 3, 64, 64)
    x = torch.where(torch.arange(16)[:, None, None, None] < 8, stripes, stripes.mT)
    soft = softened(x, torch.Generator().manual_seed(0))
    contrast = soft.flatten(1).std(1)
    assert contrast.min() < 0.5 < 0.9 < contrast.max() <= 1.01
    assert (soft - x).mean().abs() < 0.02
    assert torch.equal(soft, softened(x, torch.Generator().manual_seed(0)))


def test_the_documents_prior_learns_from_decided_tokens_and_from_evidence(tokenizer, tmp_path):
    """Two sorts of pictures, black and white: one neighbour tells which."""
    torch.manual_seed(0)
    loaded = load_magvit(tokenizer, "cpu", torch.float32)
    config = ConvolutionalConfig(bits=4, width=16, blocks=2, kernel=3)
    prior = ConvolutionalPrior(ConvolutionalNet(config), loaded)
    net = prior.net.requires_grad_(True)
    pictures = torch.tensor([-1.0, 1.0]).repeat(4)[:, None, None, None].expand(8, 3, 32, 32)
    loss = ConvolutionalLoss(prior, lambda: pictures, 8, 0.1, 0)
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(60):
        value, _ = loss(0.0)
        adam.zero_grad()
        value.backward()
        adam.step()
    scores = validate_prior(net, prior, loaded.encode(pictures))
    assert scores["nll_quarter"] < scores["nll_half"] + 0.05 < scores["nll_all"] - 0.1
    assert scores["nll_heard"] < scores["nll_all"] - 0.1
    folder = tmp_path / "prior"
    folder.mkdir()
    export_convolutional(net, config, folder)
    again = load_convolutional(folder, loaded, "cpu", torch.float32)
    z_BL = loaded.encode(pictures).masked_fill(torch.arange(64) % 2 == 0, MASK)
    asked = {**HALF_DECIDED, "grid": (8, 8)}
    expected = prior.logits(z_BL, **asked)
    assert torch.allclose(again.logits(z_BL, **asked), expected, atol=0.05)


def test_a_frozen_encoder_keeps_its_codes():
    torch.manual_seed(0)
    model = Magvit2(shape(32, 1, 32, 1, 4, patch=2, attention=False))
    model.encoder.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    loss = TokenizerLoss(model, lambda: x, torch.device("cpu"))
    optimizers = optimizers_for(model, 1e-2)
    for _ in range(2):
        loss(0.5)[0].backward()
        for optimizer in optimizers:
            optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not value.equal(before[name])}
    assert changed
    assert all(name.startswith("decoder.") for name in changed)
