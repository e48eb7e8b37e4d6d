"""Diagnosis: features against closed forms, families of blur, compression, missing pixels.

``research/diagnosis/simulated.py`` measures errors and calibration on all withheld pictures.
"""

import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from aps_core.errors import ImageRejected
from aps_core.identify.diagnosis import Diagnosis, diagnose, found_by, shows_text
from aps_core.identify.diagnosis.features import ANGLES, RADII, SCALES, features
from aps_core.identify.kinds.blind import Blind
from aps_core.imaging import images
from aps_core.imaging.images import Picture
from aps_core.imaging.noise import add_poisson
from aps_core.operators.super_resolution import SuperResolution
from aps_core.restoration.measurement import Measurement
from aps_core.tasks import RestoreSpec
from training.diagnosis.simulate import Truth, degraded, filtered, to_image

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = ("coffee", "kleiber", "hedgehog", "castle")
PAGES = ("page-play", "screen-7-shell-appmenu-shell", "scan-1600", "page-quattrocento")


def picture(name):
    folder = "documents" if (EXAMPLES / "documents" / f"{name}.png").exists() else "photos"
    image = Image.open(EXAMPLES / folder / f"{name}.png").convert("RGB")
    return np.asarray(image, dtype=np.float64) / 127.5 - 1


def encoded(x, kind="PNG", **options):
    buffer = io.BytesIO()
    image = x if isinstance(x, Image.Image) else to_image(x)
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def found(diagnosis: Diagnosis, kind):
    return next((f for f in diagnosis.findings if f.kind == kind), None)


def spoilt(name, family, size, angle=0.0, noise=0.0):
    truth = Truth(
        family=family, size=size, angle=angle, noise=noise, quality=0, document=name in PAGES
    )
    return diagnose(encoded(degraded(picture(name), truth, np.random.default_rng(0))))


def test_white_noise_has_its_variance_at_every_frequency_and_direction():
    noise = 0.1 * np.random.default_rng(0).standard_normal((256, 200))
    power = np.exp(features([noise]).spectrum_RA)
    assert power.shape == (RADII, ANGLES)
    assert np.exp(features([noise]).others[0]) == pytest.approx(0.01, rel=0.2)
    assert power[4:].std() < 0.3
    assert power[4:].mean() == pytest.approx(1, abs=0.2)


def medians(width):
    """Median loss of a Gaussian edge, averaged over two directions, behind the wider Gaussians."""
    columns = np.arange(160) - 79.5
    step = np.tile([math.erf(c / width / math.sqrt(2)) for c in columns], (160, 1))
    return np.mean([features([turned]).edges[1:12:3] for turned in (step, step.T)], axis=0)


def test_an_edge_loses_what_the_formula_says():
    for width in (3.0, 5.0):  # the counted pixels lie on the slope
        ideal = [math.log(math.sqrt((width**2 + 1) / (width**2 + s**2))) for s in SCALES[1:]]
        np.testing.assert_allclose(medians(width), ideal, atol=0.12)
    assert (medians(1.5) < medians(3.0)).all()


@pytest.mark.parametrize("name", [*PHOTOS, *PAGES])
def test_nothing_is_wrong_with_sharp_pictures(name):
    diagnosis = diagnose(encoded(picture(name)))
    assert found(diagnosis, "blur") is None
    assert found(diagnosis, "enlarged") is None
    assert found(diagnosis, "jpeg") is None
    assert found(diagnosis, "content").values["document"] == (name in PAGES)


@pytest.mark.parametrize("name", ["coffee", "hedgehog", "page-play"])
@pytest.mark.parametrize(
    ("family", "size", "field"),
    [("gaussian", 2.0, "sigma"), ("defocus", 4.0, "radius"), ("enlarged", 3.0, "factor")],
)
def test_blurs_are_recognised(name, family, size, field):
    diagnosis = spoilt(name, family, size)
    finding = found(diagnosis, "enlarged" if family == "enlarged" else "blur")
    assert finding is not None, diagnosis.summary
    assert finding.values.get("family", "enlarged") == family, diagnosis.summary
    assert finding.values[field] == pytest.approx(size, rel=0.25)
    assert diagnosis.summary[0].isupper()


@pytest.mark.parametrize("angle", [0, 35, 110])
def test_the_direction_of_a_movement_is_found(angle):
    finding = found(spoilt("coffee", "motion", 12.0, angle), "blur")
    assert finding.values["family"] == "motion"
    off = abs(finding.values["angle"] - angle) % 180
    assert min(off, 180 - off) < 12


def test_what_is_called_sure_is_right():
    """A small sample of what the benchmark measures."""
    wrong, sure = 0, 0
    for name in (*PHOTOS, *PAGES):
        for family, size in (
            ("sharp", 0.1),
            ("gaussian", 1.5),
            ("defocus", 3.0),
            ("enlarged", 2.0),
        ):
            diagnosis = spoilt(name, family, size)
            finding = found(diagnosis, "blur") or found(diagnosis, "enlarged")
            if finding is None:
                called = "sharp" if not diagnosis.unsure else None
            else:
                called = finding.values.get("family", "enlarged")
                called = called if finding.confidence == "sure" else None
            if called is not None:
                sure, wrong = sure + 1, wrong + (called != family)
    assert sure >= 12
    assert wrong <= 1


@pytest.mark.parametrize("quality", [20, 60, 85])
def test_jpeg_quality_from_the_file_and_from_the_pixels(quality):
    file = encoded(picture("hedgehog"), "JPEG", quality=quality)
    known = found(diagnose(file), "jpeg")
    assert (known.values, known.confidence) == ({"quality": quality, "from": "file"}, "sure")
    cropped = Image.open(io.BytesIO(file)).crop((3, 5, 250, 251))
    # the grid of a cropped picture is found if the steps are coarse
    for again in (Image.open(io.BytesIO(file)), *([cropped] if quality <= 60 else [])):
        traced = found(diagnose(encoded(again)), "jpeg")
        assert traced.values["quality"] == pytest.approx(quality, abs=3)
        assert traced.values["from"] == "pixels"


def test_a_fine_jpeg_of_a_coarse_one_has_the_quality_of_the_coarse_one():
    coarse = encoded(picture("hedgehog"), "JPEG", quality=30)
    file = encoded(Image.open(io.BytesIO(coarse)), "JPEG", quality=96)
    finding = found(diagnose(file), "jpeg")
    assert finding.wrong
    assert finding.values["quality"] == pytest.approx(30, abs=2)
    assert finding.values["from"] == "pixels"


def test_a_fine_jpeg_is_no_degradation():
    finding = found(diagnose(encoded(picture("coffee"), "JPEG", quality=96)), "jpeg")
    assert not finding.wrong


def test_noise_and_its_kind():
    noisy = found(spoilt("kleiber", "sharp", 0.1, noise=0.05), "noise")
    assert noisy.values["kind"] == "gaussian"
    assert noisy.values["sigma"] == pytest.approx(0.05, rel=0.2)
    x, rng = picture("kleiber"), np.random.default_rng(0)
    photons = rng.poisson((x + 1) / 2 * 200) / 100 - 1
    assert found(diagnose(encoded(photons)), "noise").values["kind"] == "photons"
    salted = x.copy()
    salted[rng.random(x.shape[:2]) < 0.03] = 1
    assert found(diagnose(encoded(salted)), "noise").values["kind"] == "impulses"


@pytest.mark.parametrize("size", [10, 12, 14])
def test_small_type_is_no_noise(size):
    page = Image.new("L", (256, 256), 255)
    lines = "\n".join(["The keeper lights the lantern, then counts the little boats."] * 14)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(page).multiline_text((4, 4), lines, fill=0, font=font, spacing=2)
    found = diagnose(encoded(np.asarray(page.convert("RGB")) / 127.5 - 1))
    assert not [each for each in found.findings if each.kind == "noise" and each.wrong]
    assert found.proposal is None


def test_missing_and_clipped_pixels():
    x = picture("castle")
    boxed = x.copy()
    boxed[60:140, 80:200] = 0
    box = found(diagnose(encoded(boxed)), "missing")
    assert box.values["shape"] == "box"
    assert box.values["share"] == pytest.approx(80 * 120 / 256**2, rel=0.05)
    scattered = x.copy()
    scattered[np.random.default_rng(0).random(x.shape[:2]) < 0.6] = 0
    assert found(diagnose(encoded(scattered)), "missing").values["shape"] == "scattered"
    clear = to_image(x)
    clear.putalpha(Image.linear_gradient("L"))
    alpha = found(diagnose(encoded(clear)), "missing")
    assert alpha.values["share"] == pytest.approx(0.5, abs=0.02)
    assert found(diagnose(encoded(x)), "missing") is None
    clipped = found(diagnose(encoded(1.8 * x)), "clipped")
    assert clipped.wrong
    assert clipped.values["white"] + clipped.values["black"] > 0.1


@pytest.mark.parametrize("paper", ["white", "black"])
def test_a_page_with_little_on_it_misses_nothing(paper):
    """Nor are thin strokes in black and white noise."""
    page = Image.new("L", (400, 300), paper)
    pen = ImageDraw.Draw(page)
    for line in range(6):
        words = "a page with a few words on it, and dots ....."
        pen.text((40, 30 + 40 * line), words, fill="white" if paper == "black" else "black")
    sharp = page.point(lambda value: 255 if value > 127 else 0)
    for image in (page, sharp):
        diagnosis = diagnose(encoded(image.convert("RGB")))
        assert found(diagnosis, "missing") is None, diagnosis.summary
    assert found(diagnosis, "noise") is None, diagnosis.summary


@pytest.mark.parametrize("name", ["coffee", "castle", "screen-7-shell-appmenu-shell"])
@pytest.mark.parametrize("quality", [90, 95, 98])
def test_noise_is_found_in_a_jpeg_that_smoothed_its_colours(name, quality):
    clean = to_image(picture(name))
    noise = np.random.default_rng(0).normal(0, 18, (*clean.size[::-1], 3))
    noisy = Image.fromarray((np.asarray(clean) + noise).round().clip(0, 255).astype(np.uint8))
    kept = found(diagnose(encoded(noisy, "JPEG", quality=quality)), "noise")
    assert kept.values["sigma"] * 127.5 == pytest.approx(18, rel=0.35)
    assert found(diagnose(encoded(clean, "JPEG", quality=quality)), "noise") is None


@pytest.mark.parametrize("count", [40, 150])
def test_photons_are_counted(count):
    """And a job without a given noise assumes them; Gaussian noise is not taken for photons."""
    clean = torch.from_numpy(picture("castle")).permute(2, 0, 1).float()
    seen = add_poisson(clean, count, torch.Generator().manual_seed(0)).clamp(-1, 1)
    data = images.encode_png(seen)
    diagnosis = diagnose(data)
    assert found(diagnosis, "noise").values["peak"] == pytest.approx(count, rel=0.2)
    assert diagnosis.proposal is not None
    spec = RestoreSpec.model_validate(diagnosis.proposal)
    assert (spec.noise, spec.peak) == ("poisson", found(diagnosis, "noise").values["peak"])
    taken = found_by(diagnosis, "auto")
    assert taken is not None
    assert Measurement(clean, "auto").identified(taken).peak == taken.peak is not None
    assert Measurement(clean, "auto", sigma=0.1).identified(taken).peak is None
    white = clean + 0.12 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    other = diagnose(images.encode_png(white.clamp(-1, 1)))
    assert found(other, "noise").values["kind"] == "gaussian"
    assert "noise" not in (other.proposal or {})


def test_clean_texture_that_grows_with_brightness_is_not_photon_noise():
    assert found(diagnose(encoded(picture("flower"))), "noise") is None


@pytest.mark.parametrize("size", [(200, 1), (2000, 3), (1, 200)])
def test_a_strip_lower_than_letters_is_no_page(size):
    strip = to_image(picture("motorcycle")).resize(size)
    assert not shows_text(Picture(strip))


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_repeated_pixels_are_counted(factor):
    small = to_image(picture("coffee")).resize((80, 60))
    large = small.resize((80 * factor, 60 * factor), Image.Resampling.NEAREST)
    finding = found(diagnose(encoded(large)), "enlarged")
    assert finding.values == {"factor": factor, "filter": "nearest"}
    assert finding.confidence == "sure"


def test_a_wide_blur_of_a_large_picture_is_measured_at_a_lower_resolution():
    names = [*PHOTOS, *PHOTOS[::-1], "coffee"]
    rows = [np.concatenate([picture(n) for n in names[i : i + 3]], 1) for i in (0, 3, 6)]
    truth = Truth(family="gaussian", size=9.0, angle=0.0, noise=0.01, quality=0, document=False)
    large = degraded(np.concatenate(rows), truth, np.random.default_rng(0))
    finding = found(diagnose(encoded(large)), "blur")
    assert finding.values["sigma"] == pytest.approx(9, rel=0.3)


@pytest.mark.parametrize("name", ["coffee", "page-play", "scan-1400"])
@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_a_shaken_camera_is_recognised_and_its_blur_searched(name, sigma):
    """Along a circle's arc, which is no curve of the training."""
    turns = np.linspace(0, 4, 400)
    edges = np.arange(14) - 6.5
    kernel = np.histogram2d(6 * np.sin(turns), 6 * np.cos(turns), bins=(edges, edges))[0]
    seen = filtered(picture(name), kernel / kernel.sum())
    noisy = seen + sigma * np.random.default_rng(0).standard_normal(seen.shape)
    diagnosis = diagnose(encoded(noisy))
    assert diagnosis.shaken, diagnosis.summary
    assert "shaken camera" in diagnosis.summary
    operator = RestoreSpec.model_validate(diagnosis.proposal).operator
    assert isinstance(operator, Blind)
    assert operator.method == "free_kernel"


@pytest.mark.parametrize("family", ["gaussian", "defocus", "motion", "enlarged", "sharp", "shaken"])
def test_proposals_are_restore_jobs(family):
    data = encoded(
        degraded(
            picture("coffee"),
            Truth(family=family, size=3.0, angle=30, noise=0.03, quality=0, document=False),
            np.random.default_rng(0),
        )
    )
    proposal = diagnose(data).proposal
    spec = RestoreSpec.model_validate(proposal)
    spec.check((256, 256), None, False)
    if family == "enlarged":
        assert isinstance(spec.operator, SuperResolution)
        assert spec.layout((256, 256)).measured[0] * spec.operator.factor <= 256


def test_small_and_unreadable_pictures():
    tiny = diagnose(encoded(picture("coffee")[:20, :30]))
    assert any("too small" in doubt for doubt in tiny.unsure)
    with pytest.raises(ImageRejected):
        diagnose(b"no picture")


def test_it_needs_no_torch():
    code = (
        "import sys; from aps_core.identify.diagnosis import diagnose;"
        f" diagnose(open({str(EXAMPLES / 'photos/coffee.png')!r}, 'rb').read());"
        " assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def reduced(path, size=(40, 30)):
    """The middle of a picture, about 640 pixels or all of it wide, as a tiny one."""
    image = Image.open(path).convert("RGB")
    width = min(image.width, image.height * 4 // 3, 640)
    left, top = (image.width - width) // 2, (image.height - width * 3 // 4) // 2
    part = image.crop((left, top, left + width, top + width * 3 // 4))
    return Picture(part.resize(size, Image.Resampling.BOX))


def test_tiny_pages_are_told_from_tiny_photographs():
    """So that the warning about letters and the prior for pages are not lost on them."""
    pages = [shows_text(reduced(path)) for path in EXAMPLES.glob("documents/*.png")]
    photographs = [shows_text(reduced(path)) for path in EXAMPLES.glob("photos/*.png")]
    assert (len(pages), len(photographs)) == (30, 17)
    assert sum(pages) >= 26
    assert sum(photographs) <= 2


@pytest.mark.parametrize("size", [(200, 150), (1, 1), (1, 3000)])
def test_nothing_is_said_about_the_sharpness_of_a_single_colour(size):
    diagnosis = diagnose(encoded(Image.new("RGB", size, (9, 80, 3))))
    assert "one colour" in diagnosis.unsure[0]
    assert found(diagnosis, "blur") is None
    assert found(diagnosis, "content").confidence == "not sure"
    assert diagnosis.proposal is None
