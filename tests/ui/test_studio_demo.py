"""The demo: the page degrades a picture like the library, restores it, compares with the truth."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page, expect
from torch import Tensor

from aps_core.evaluation import metrics
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.operators import OperatorSpec
from tests.stack import Stack, png
from tests.ui.pages import SLOW, choose, ended, sampler, submit

PHOTO = Path(__file__).parents[2] / "service" / "ui" / "samples" / "photo-raccoon.png"
HEIGHT, WIDTH = 40, 56


@pytest.fixture(scope="module")
def x_CHW() -> Tensor:
    return resize(images.to_tensor(images.open_image(PHOTO.read_bytes())), (128, 128))[
        :, 30 : 30 + HEIGHT, 20 : 20 + WIDTH
    ].clamp(-1, 1)


def in_page(page: Page, script: str, *pictures: Tensor, **arguments: Any) -> Any:
    """Evaluates ``script``, a function of pictures and arguments, in the page.

    It can use the page's modules as ``d`` (degrade) and ``p`` (pixels).
    """
    given = [
        {"width": x.shape[-1], "height": x.shape[-2], "planes": x.flatten(1).tolist()}
        for x in pictures
    ]
    return page.evaluate(
        f"""async ([given, options]) => {{
            const [d, p] = await Promise.all([import("/degrade.js"), import("/pixels.js")]);
            const pictures = given.map((x) => ({{
                ...x, planes: x.planes.map((plane) => Float32Array.from(plane)),
            }}));
            const found = ({script})(...pictures, options);
            if (!found.planes) return found;
            return {{ ...found, planes: found.planes.map((plane) => [...plane]) }};
        }}""",
        [given, arguments],
    )


def tensor(picture: dict[str, Any]) -> Tensor:
    return torch.tensor(picture["planes"]).view(3, picture["height"], picture["width"])


@pytest.mark.parametrize(
    "operator",
    [
        {"type": "denoise"},
        {"type": "hdr", "scale": 2.5},
        {"type": "colorize"},
        {"type": "super_resolution", "factor": 2},
        {"type": "super_resolution", "factor": 8},
        {"type": "gaussian_blur", "sigma": 1.3},
        {
            "type": "saturating_blur",
            "sigma": 2.0,
            "focus_x": 0.3,
            "focus_y": 0.6,
            "highlights": 3.0,
        },
        {
            "type": "inpainting",
            "mask": "box",
            "top": 0.2,
            "left": 0.33,
            "height": 0.41,
            "width": 0.5,
        },
        {"type": "jpeg", "quality": 12},
        {"type": "jpeg", "quality": 80},
        {
            "type": "compose",
            "stages": [
                {"type": "gaussian_blur", "sigma": 0.7},
                {"type": "super_resolution", "factor": 4},
                {"type": "jpeg", "quality": 30},
            ],
        },
    ],
    ids=lambda operator: operator["type"],
)
def test_the_page_degrades_as_the_library_does(
    page: Page, x_CHW: Tensor, operator: dict[str, Any]
) -> None:
    spec = OperatorSpec.named(operator["type"]).model_validate(operator)
    wanted = spec.bind((3, HEIGHT, WIDTH))(x_CHW[None])[0]
    found = tensor(
        in_page(
            page,
            "(x, { operator }) => d.apply(x, operator)",
            x_CHW,
            operator=spec.model_dump(mode="json"),
        )
    )
    assert found.shape == wanted.shape
    # a coefficient that lies between two levels may be rounded either way, which changes one block
    # a little
    close = (found - wanted).abs() < 1e-3
    assert close.float().mean() > (0.97 if "jpeg" in str(operator) else 0.9999)


def test_each_mode_starts_with_an_operator_that_suits_it(page: Page) -> None:
    expect(page.locator(".chip [value=auto]")).to_be_checked()
    page.get_by_text("Demo: degrade a clean picture").click()
    expect(page.locator(".chip [value=super_resolution]")).to_be_checked()
    choose(page, png(64, 64), slot="Clean picture")
    expect(page.get_by_text("16 × 16 pixels, computed on this page")).to_be_visible()
    page.get_by_text("My picture is degraded").click()
    expect(page.locator(".chip [value=auto]")).to_be_checked()


def test_operators_that_cannot_be_simulated_are_named(page: Page) -> None:
    simulated = page.evaluate(
        """async (operators) => {
            const d = await import("/degrade.js");
            return operators.filter((type) => d.canSimulate({ type, stages: [] }));
        }""",
        sorted(OperatorSpec.family),
    )
    assert set(OperatorSpec.family) - set(simulated) == {
        "auto",
        "blind",
        "blind_blur",
        "defocus_blur",
        "kernel_blur",
        "linear_motion_blur",
        "motion_blur",
        "nonlinear_blur",
    }, "kernels, random paths and weights are the library's alone"
    page.get_by_text("Demo: degrade a clean picture").click()
    choose(page, png(64, 64), slot="Clean picture")
    page.get_by_text("Shaken camera", exact=True).click()
    expect(page.get_by_text("cannot be simulated on this page")).to_be_visible()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Use aps degrade")


def test_metrics_match_the_library(page: Page, x_CHW: Tensor) -> None:
    y_CHW = (
        x_CHW + 0.1 * torch.randn(x_CHW.shape, generator=torch.Generator().manual_seed(0))
    ).clamp(-1, 1)
    psnr, ssim = in_page(page, "(x, y) => [p.psnr(y, x), p.ssim(y, x)]", x_CHW, y_CHW)
    assert psnr == pytest.approx(metrics.psnr(y_CHW[None], x_CHW[None]).item(), abs=1e-3)
    assert ssim == pytest.approx(metrics.ssim(y_CHW[None], x_CHW[None]).item(), abs=1e-4)


def test_noise_has_the_given_strength(page: Page) -> None:
    grey = torch.full((3, 64, 64), -0.2)
    draw = "(x, { options, coloured }) => d.noisy(x, options, coloured)"
    gaussian = tensor(
        in_page(
            page, draw, grey, options={"sigma": 0.1, "noise": "gaussian", "seed": 3}, coloured=True
        )
    )
    assert gaussian.std().item() == pytest.approx(0.1, rel=0.05)
    assert gaussian.mean().item() == pytest.approx(-0.2, abs=0.01)
    assert torch.corrcoef(gaussian.flatten(1))[0, 1].abs() < 0.1, (
        "independent from colour to colour"
    )
    for peak in (20, 1000):
        poisson = tensor(
            in_page(
                page,
                draw,
                grey,
                options={"noise": "poisson", "peak": peak, "seed": 3},
                coloured=True,
            )
        )
        assert poisson.std().item() == pytest.approx(2 / peak * (0.4 * peak) ** 0.5, rel=0.05)
        assert poisson.mean().item() == pytest.approx(-0.2, abs=0.02)
    one = tensor(in_page(page, draw, grey, options={"seed": 1}, coloured=False))
    assert torch.equal(one[0], one[1]), "what has no colour has no coloured noise"


def test_a_clean_picture_is_degraded_restored_and_compared(page: Page, stack: Stack) -> None:
    page.get_by_text("Demo: degrade a clean picture").click()
    page.get_by_role("button", name="Raccoon, to reduce").click()
    expect(page.get_by_text(re.compile("^32 × 32 pixels, computed on this page"))).to_be_visible()
    page.get_by_text("Noise only", exact=True).click()
    page.get_by_label("Noise level", exact=True).fill("0.2")
    page.get_by_text("More settings").click()
    page.get_by_label("Longest side of the result").fill("64")
    expect(page.get_by_text(re.compile("^64 × 64 pixels, computed on this page"))).to_be_visible()
    sampler(page, steps=4, inner_steps=4)
    job_id = submit(page)
    ended(page, "Restored")
    assert stack.job(job_id)["spec"]["operator"] == {"type": "denoise"}

    truth = resize(images.to_tensor(images.open_image(PHOTO.read_bytes())), (64, 64)).clamp(-1, 1)
    measured, restored = (
        images.to_tensor(images.open_image(stack.artifact(job_id, name)))
        for name in ("measurement.png", "result.png")
    )
    assert (measured - truth).std().item() == pytest.approx(0.2, rel=0.15), (
        "what was sent is the noisy picture, not the clean one"
    )
    section = page.locator(".truth")
    expect(section).to_be_visible(timeout=SLOW)
    said = [float(number) for number in re.findall(r"\d+\.\d+", section.inner_text())]
    for (before, after), measure, tolerance in (
        (said[:2], metrics.psnr, 0.7),
        (said[2:4], metrics.ssim, 0.03),
    ):  # browsers downscale pictures differently
        assert before == pytest.approx(measure(measured[None], truth[None]).item(), abs=tolerance)
        assert after == pytest.approx(measure(restored[None], truth[None]).item(), abs=tolerance)
    page.get_by_role("button", name="Known truth").click()
    expect(page.locator("img.after")).to_have_attribute("src", re.compile("^blob:"))

    page.get_by_role("button", name="Edit and run again").click()
    expect(page.get_by_role("radio", name="My picture is degraded")).to_be_checked()
    expect(page.get_by_text("measurement.png, 64 × 64 pixels")).to_be_visible()


def test_missing_pixels_are_those_that_were_hidden(page: Page, stack: Stack) -> None:
    page.get_by_text("Demo: degrade a clean picture").click()
    choose(page, png(48, 32), slot="Clean picture")
    page.get_by_text("Missing pixels", exact=True).click()
    expect(page.get_by_text("Paint over the pixels to remove.")).to_be_visible()
    page.locator('[data-pointer="/operator/mask"]').select_option(label="Random")
    page.get_by_label("Fraction").fill("0.4")
    expect(page.get_by_text(re.compile("^48 × 32 pixels, computed on this page"))).to_be_visible()
    page.get_by_label("Noise level", exact=True).fill("0")
    sampler(page, steps=1, inner_steps=1)
    job_id = submit(page)
    with (
        Image.open(io.BytesIO(stack.artifact(job_id, "mask.png"))) as mask,
        Image.open(io.BytesIO(stack.artifact(job_id, "measurement.png"))) as sent,
        Image.open(io.BytesIO(png(48, 32))) as clean,
    ):
        known, y, x = (
            np.asarray(mask.convert("L")) == 255,
            np.asarray(sent.convert("RGB")),
            np.asarray(clean),
        )
    assert known.mean() == pytest.approx(0.6, abs=0.01)
    assert (y[known] == x[known]).all()
    assert (y[~known] == 128).all()
    assert stack.job(job_id)["spec"]["operator"]["mask"] == "upload"
