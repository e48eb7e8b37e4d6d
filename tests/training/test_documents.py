"""Documents to train on: what is withheld, tiles, crops, and the files of the two stages."""

import json
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from aps_core.priors.convolutional.network import (
    Answer,
    ConvolutionalConfig,
    ConvolutionalNet,
    ConvolutionalPrior,
    load_convolutional,
)
from aps_core.priors.mmada.network import MMaDAPrior, load_mmada
from aps_core.runtime.memory import magvit_decoder
from aps_core.samplers.plug_and_play import AREA_WEIGHT
from aps_core.sampling.brightness_fit import single_pixels, square_of_change
from aps_core.tokenizers.magvit2 import MagvitTokenizer, load_magvit
from aps_core.tokenizers.magvit2_net import Magvit2
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK
from training import convolutional, random_measurement
from training.convolutional import ConvolutionalLoss
from training.convolutional import export as export_convolutional
from training.convolutional_scores import surprise, validate
from training.documents import sources
from training.documents.crops import DocumentCrops, stream
from training.documents.fonts import Face
from training.documents.pages import PageMaker, wrap
from training.documents.panels import PanelMaker
from training.documents.prior import KINDS
from training.prior import flipped
from training.prior_network import (
    build,
    config_for,
    take_layers,
    take_tables,
    text_tokenizer,
)
from training.prior_network import export as export_prior
from training.random_measurement import RandomMeasurement
from training.restoration import Restoration
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


def stripes(turned: bool) -> torch.Tensor:
    lying = (torch.arange(64) // 4 % 2 * 2.0 - 1).expand(1, 3, 64, 64)
    return (lying.mT if turned else lying).contiguous()


def measurements(x, count):
    generator = torch.Generator().manual_seed(0)
    return [RandomMeasurement(x, generator) for _ in range(count)]


def test_measurements_are_of_many_kinds_and_fit_their_own_picture():
    x = stripes(False)
    made = measurements(x, 60)
    assert {m.factor for m in made} == {1, 2, 4}
    assert len({len(m.kernel_kk) for m in made}) > 5
    clipped = [m for m in made if m.clipped]
    assert 0 < len(clipped) < 15
    assert 3 < sum(m.jpeg is not None for m in made) < 20
    assert 2 < sum(bool((m.known_1cHW == 0).any()) for m in made) - len(clipped) < 25
    for m in clipped:
        fitted = m.fitted(torch.zeros_like(x), torch.ones_like(x[:, :1]))
        assert (m.beyond_1Chw * fitted >= m.limit * m.beyond_1Chw.abs() - 1e-6).all()
        assert (fitted - x).abs().mean() < 1 - m.limit + 1e-3
    for m in made:
        assert m.kernel_kk.sum() == pytest.approx(1, abs=1e-4)
        seen = m.seen_1Chw[m.applied(torch.ones_like(x)) != 0]  # where pixels are known
        own, other = m.negative_log_likelihood(x), m.negative_log_likelihood(stripes(True))
        assert other > own
        if m.jpeg is not None:
            assert m.sigma >= m.jpeg.rounding
        else:  # the noise alone: half of a chi-squared number
            half = seen.numel() / 2
            assert own.item() == pytest.approx(half, abs=4.5 * half**0.5)
    again = measurements(x, 60)
    assert all(torch.equal(a.seen_1Chw, b.seen_1Chw) for a, b in zip(made, again, strict=True))


def test_a_fit_solves_its_normal_equations(monkeypatch):
    """Against a dense solution, of a blurred and thinned small picture."""
    monkeypatch.setattr(random_measurement, "FIT_STEPS", 200)
    x = torch.rand(1, 3, 14, 14, generator=torch.Generator().manual_seed(3)) * 2 - 1
    measurement = next(m for m in measurements(x, 60) if len(m.kernel_kk) > 3)
    deviation_11HW = torch.rand(1, 1, 14, 14, generator=torch.Generator().manual_seed(4)) + 0.1
    fitted = measurement.fitted(x * 0.5, deviation_11HW**-2)
    columns = [measurement.applied(e.view(1, 1, 14, 14)).flatten() for e in torch.eye(196)]
    matrix = torch.stack(columns, 1).double()
    off = (measurement.seen_1Chw - measurement.applied(x * 0.5)).mean(1).flatten().double()
    single = single_pixels(torch.eye(196).view(196, 14, 14)).flatten(1).T.double()
    weights = torch.diag(deviation_11HW.flatten().double() ** -2)
    precision = (1 - AREA_WEIGHT) * single.T @ weights @ single + AREA_WEIGHT * weights
    scale = 3 / measurement.sigma**2
    change = torch.linalg.solve(scale * matrix.T @ matrix + precision, scale * matrix.T @ off)
    expected = x * 0.5 + change.view(1, 1, 14, 14).float()

    def energy(picture: torch.Tensor) -> float:
        moved = (picture - x * 0.5)[:, 0]
        square = square_of_change(moved, AREA_WEIGHT)
        divergence = (square / deviation_11HW[0].square()).sum() / 2
        return float(measurement.negative_log_likelihood(picture) + divergence)

    assert energy(expected) < 0.95 * energy(x * 0.5)
    assert energy(fitted) == pytest.approx(energy(expected), rel=1e-3)


def test_gradients_of_a_fit_are_its_differences(monkeypatch):
    """In the picture that is fitted, and in the precision with which it holds."""
    monkeypatch.setattr(random_measurement, "FIT_STEPS", 200)
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(1, 3, 14, 14, generator=generator) * 2 - 1
    measurement = next(m for m in measurements(x, 60) if len(m.kernel_kk) > 3)
    measurement.sigma = 0.3
    precision_11HW = 1 + 10 * torch.rand(1, 1, 14, 14, generator=generator)
    weights = torch.randn(x.shape, generator=generator)
    inputs = [(x * 0.5).requires_grad_(), precision_11HW.requires_grad_()]
    (measurement.fitted(*inputs) * weights).sum().backward()
    for moved in (0, 1):
        uphill = inputs[moved].grad / inputs[moved].grad.norm()
        ends = []
        for step in (0.1, -0.1):
            end = [t.detach() + (i == moved) * step * uphill for i, t in enumerate(inputs)]
            ends.append(float((measurement.fitted(*end) * weights).sum()))
        slope = (ends[0] - ends[1]) / 0.2
        assert slope == pytest.approx(float(inputs[moved].grad.norm()), rel=0.02)


def test_first_estimates_fill_gaps_smoothly():
    slope = torch.linspace(-0.8, 0.8, 64)
    x = (0.5 * slope[:, None] + 0.5 * slope).expand(1, 3, 64, 64).contiguous()
    made = measurements(x, 60)
    gaps = [m for m in made if (m.known_1cHW == 0).any() and not m.clipped]
    assert len(gaps) > 3
    for m in gaps:
        assert (m.first_estimate() - x).square().mean().sqrt() < 2 * m.sigma


def test_first_estimates_come_before_the_rounds():
    """A network that knows the picture restores it in one round."""
    generator = torch.Generator().manual_seed(0)
    x = stripes(False)
    restoration = Restoration.of(x[0], generator)
    first = restoration.estimate_CHW
    fitted = restoration.fitted(x[0], torch.full((64 * 64,), 0.001**-2))
    restoration.advance(fitted, torch.zeros(64, 64))
    assert restoration.rounds == 1
    assert (restoration.estimate_CHW - x[0]).abs().mean() < 0.1 * (first - x[0]).abs().mean()


def test_a_continuous_network_is_scored_by_its_normal_distribution():
    """In nats of a level: the entropy of noise of one standard deviation, whatever the levels."""
    tokenizer, generator = PixelTokenizer(), torch.Generator().manual_seed(0)
    y = torch.rand(1, 1, 64, 64, generator=generator) - 0.5
    drawn = torch.randn(1, 64 * 64, generator=generator)
    nothing, ones = torch.zeros(1, 64 * 64, 16), torch.ones(1, 64 * 64)

    def surprised(deviation: float) -> float:
        mean = y.flatten(1) + 0.1 * drawn
        said = Answer(
            y_BLY=nothing,
            colour_BL4=nothing[..., :4],
            mean_BL=mean,
            variance_BL=ones * deviation**2,
            colours_BCHW=y,
            weight_BL=ones,
        )
        x = y.expand(1, 3, -1, -1)
        return float(surprise(said, x, torch.tensor([True]), tokenizer, True).mean())

    entropy = 0.5 + 0.5 * np.log(2 * np.pi * 0.1**2) - np.log(2 / 15)
    assert surprised(0.1) == pytest.approx(entropy, abs=0.05)
    assert min(surprised(0.05), surprised(0.2)) > surprised(0.1) + 0.2


@pytest.mark.parametrize("continuous", [False, True])
def test_the_convolutional_prior_learns_from_decided_tokens_and_from_an_estimate(
    tmp_path, monkeypatch, continuous
):
    """Two sorts of pictures, stripes and the same inverted: one neighbour tells which."""
    monkeypatch.setattr(random_measurement, "FIT_STEPS", 4)
    monkeypatch.setattr(convolutional, "UNDER_WAY", 0.5)
    monkeypatch.setattr(convolutional, "RUNNING", 8)
    torch.manual_seed(0)
    tokenizer = PixelTokenizer()
    config = ConvolutionalConfig(bits=6, width=16, blocks=2, kernel=3, continuous=continuous)
    net = ConvolutionalNet(config)
    sign = torch.tensor([-1.0, 1.0]).repeat(4)[:, None, None, None]
    pictures = (0.8 * sign * stripes(False)[..., 2:18, 2:18]).contiguous()  # not clipped
    drawn = cycle(pictures.split(1))
    loss = ConvolutionalLoss(net, tokenizer, partial(next, drawn), 8, 0.1, 2, True, KINDS, 0)
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(120):
        value, _ = loss(0.0)
        adam.zero_grad()
        value.backward()
        adam.step()
    scores = validate(net, tokenizer, pictures, 2, KINDS)
    assert max(scores["nll_quarter"], scores["nll_half"]) < scores["nll_all"] - 0.1
    assert continuous or scores["nll_denoised_all"] < scores["nll_all"] - 0.1
    assert scores["psnr_restored"] > scores["psnr_first"] + 0.5
    export_convolutional(net, tmp_path, config)
    again = load_convolutional(tmp_path, tokenizer, "cpu", torch.float32)
    z_BL = tokenizer.encode(pictures).masked_fill(torch.arange(256) % 2 == 0, MASK)
    asked = {**HALF_DECIDED, "grid": (16, 16)}
    expected = ConvolutionalPrior(net, tokenizer).logits(z_BL, **asked)
    assert torch.allclose(again.logits(z_BL, **asked), expected, atol=0.05)
