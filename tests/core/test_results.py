import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aps_core.errors import InvalidSpec
from aps_core.imaging.images import open_image
from aps_core.imaging.provenance import COMPOSITE, encode
from aps_core.tasks import PictureResult, RestoreSpec

SPEC = RestoreSpec(operator={"type": "hdr"}, prompt='<a> & "b"')


def result(**changes) -> PictureResult:
    pictures = torch.stack([torch.full((3, 8, 12), level) for level in (-0.5, 0.0, 0.7)])
    pictures[..., :4, :] = 0.25  # all samples agree above
    given: dict[str, Any] = {
        "spec": SPEC,
        "seconds": {},
        "fingerprint": "f",
        "pictures_BCHW": pictures,
        "codes_BL": torch.zeros(3, 6, dtype=torch.int64),
    }
    return PictureResult(**given | {"misfit_B": [0.3, 0.1, 0.2]} | changes)


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_pictures_carry_a_note_that_they_are_generated(suffix):
    x = torch.rand(3, 8, 12, generator=torch.Generator().manual_seed(0)) * 2 - 1
    image = Image.open(io.BytesIO(encode(x, result().sidecar(), suffix)))
    assert np.array_equal(
        np.asarray(image), (x * 127.5 + 127.5).round().byte().permute(1, 2, 0).numpy()
    )
    packet = image.info["xmp"]
    tree = ET.fromstring(packet if isinstance(packet, str) else packet.decode())
    texts = {element.tag.split("}")[1]: element.text for element in tree.iter()}
    assert texts["DigitalSourceType"] == COMPOSITE
    assert "not evidence" in texts["li"]
    assert RestoreSpec.model_validate_json(texts["spec"]) == SPEC


def test_other_formats_are_rejected():
    with pytest.raises(InvalidSpec, match=r"\.png or \.webp, not as '\.jpg'"):
        result().files(".jpg")


def test_files_of_several_samples():
    made = result()
    files = {file.name: file.data for file in made.files()}
    assert list(files) == [
        "result.png",
        "sample-1.png",
        "sample-2.png",
        "sample-3.png",
        "mean.png",
        "spread.png",
        "spread.npy",
    ]
    assert files["result.png"] == files["sample-2.png"] != files["sample-1.png"]  # the least misfit
    spread = np.load(io.BytesIO(files["spread.npy"]))
    assert spread.shape == (8, 12)
    assert spread[:4].max() < 1e-6
    assert np.allclose(spread[4:], np.std([-0.5, 0.0, 0.7], ddof=1))
    shown = np.asarray(Image.open(io.BytesIO(files["spread.png"])))
    assert shown[:4].max() == 0
    assert shown[4:].min() == 255  # more than what is white
    assert made.mean_CHW()[0, -1, 0] == pytest.approx(0.2 / 3)


def test_the_spread_counts_errors_that_all_samples_share():
    shared = torch.zeros(3, 8, 12)
    shared[:, 0], shared[1, 1] = 0.4, 0.3
    spread_HW = result(deviation_BHW=shared).spread_HW()
    assert torch.allclose(spread_HW[0], torch.tensor(0.4)), "the samples agree, and may be wrong"
    assert torch.allclose(spread_HW[1], torch.tensor(0.03**0.5)), "one of three expects an error"
    assert torch.equal(spread_HW[2:], result().spread_HW()[2:])


def test_the_spread_of_one_sample_is_what_the_sampler_expects():
    one = {"pictures_BCHW": torch.zeros(1, 3, 8, 12), "misfit_B": [0.1]}
    assert torch.equal(result(**one).spread_HW(), torch.zeros(8, 12))
    expected = result(**one, deviation_BHW=torch.full((1, 8, 12), 0.3)).spread_HW()
    assert torch.allclose(expected, torch.tensor(0.3))


def test_a_single_sample_has_no_spread_map():
    made = result(pictures_BCHW=torch.zeros(1, 3, 8, 12), misfit_B=[0.1])
    assert [file.name for file in made.files()] == ["result.png"]
    assert made.sidecar()["spread"] is None


def test_the_sidecar_is_json_and_identifies_samples():
    told = json.loads(json.dumps(result().sidecar()))
    assert len(set(told["samples_sha256"])) == 3
    assert told["best"] == 1


def test_a_notebook_shows_the_samples():
    made = result()
    assert open_image(made._repr_png_()).height == made.pictures_BCHW.shape[2]
    assert made._repr_html_().startswith("<figure><img")
