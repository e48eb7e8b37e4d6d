"""Operators that are identified from the upload: 'auto'."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from pydantic import ValidationError

import aps_core as aps
from aps_cli.main import main
from aps_core.errors import InvalidSpec, NothingToRestore
from aps_core.identify.blind import photograph
from aps_core.identify.blind.effort import Effort
from aps_core.identify.blind.em import WIDEST, Estimate
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.photograph import blur_of
from aps_core.identify.diagnosis import examine, found_by
from aps_core.identify.diagnosis.propose import resolved_side, without_search
from aps_core.identify.diagnosis.report import Finding
from aps_core.identify.kinds.auto import Auto
from aps_core.identify.kinds.blind import Blind
from aps_core.identify.kinds.blind_blur import BlindBlur
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from aps_core.operators import OperatorSpec
from aps_core.operators.compose import Compose
from aps_core.operators.defocus_blur import DefocusBlur
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.jpeg import JPEG
from aps_core.operators.linear_motion_blur import LinearMotionBlur
from aps_core.operators.super_resolution import SuperResolution
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from tests.engines import image_engine

PHOTOS = Path(__file__).parents[2] / "examples/photos"
DOCUMENTS = PHOTOS.parent / "documents"
SAMPLER = {
    "type": "carried_evidence",
    "steps": 2,
    "inner_steps": 1,
    "start": 0,
    "correction": 0,
}
"""Without the estimates before and after the reverse steps, which take most of the time."""


def photo(name):
    return images.to_tensor(images.open_image((PHOTOS / f"{name}.png").read_bytes()))


def truth(name="chelsea", side=64):
    return photo(name)[:, 90 : 90 + side, 90 : 90 + side].contiguous()


def blurred(x, blur=FAMILIES["gaussian"].blur((2.0,)), sigma=0.02):
    y = blur.bind(tuple(x.shape))(x[None])[0]
    return Picture(images.to_pil(noise.add_noise(y, sigma, torch.Generator().manual_seed(0))))


@pytest.fixture(scope="module")
def engine():
    return image_engine("embedded")


@pytest.fixture(scope="module")
def upload():
    return blurred(truth())


def auto(**changes):
    return RestoreSpec.model_validate({"operator": {"type": "auto"}, "sampler": SAMPLER, **changes})


def restored(spec, upload, engine, **hooks):
    result = run(spec, Inputs(upload), engine, **hooks)
    assert isinstance(result, PictureResult)
    assert isinstance(result.spec, RestoreSpec)
    return result, result.spec.operator


def test_the_operator_is_found_used_and_told(engine, upload):
    result, operator = restored(auto(), upload, engine)
    assert operator.type == "gaussian_blur"
    assert 1.5 < operator.sigma < 2.5
    told = json.loads(json.dumps(result.sidecar()))
    assert told["found"] == json.loads(json.dumps(result.metrics()["found"]))
    assert told["found"]["asked"] == "auto"
    assert told["found"]["operator"] == told["spec"]["operator"]
    assert told["found"]["confidence"] == "fairly sure"
    assert told["notes"][0] == told["found"]["text"]
    assert "Soft: a Gaussian blur of about 2" in told["found"]["text"]
    assert operator.words() in told["found"]["text"]
    named, _ = restored(auto(operator=operator), upload, engine)
    assert torch.equal(named.pictures_BCHW, result.pictures_BCHW), "as if it had been named"
    assert named.found is None


MOVEMENTS = [((7.0, 75.0), "raccoon"), ((13.0, 20.0), "coffee"), ((7.0, 75.0), "chelsea")]


def too_long(upload, length):
    """The upload's diagnosis, with a movement of this length: how far off the network is differs
    from picture to picture, and from one training to the next.
    """
    diagnosis = examine(upload)
    findings = [
        each.model_copy(update={"values": {**each.values, "length": length}})
        if each.kind == "blur"
        else each
        for each in diagnosis.findings
    ]
    return diagnosis.model_copy(update={"findings": findings})


@pytest.mark.parametrize(("true", "name"), MOVEMENTS)
def test_the_spectrum_measures_a_movement_more_closely(monkeypatch, true, name):
    family = FAMILIES["motion"]
    upload = blurred(photo(name), family.blur(true), 0.02)
    diagnosis = too_long(upload, 1.15 * true[0])
    monkeypatch.setattr("aps_core.identify.kinds.auto.examine", lambda _: diagnosis)
    found = Auto().find(Search(upload))
    assert found.operator.type == family.operator
    used = tuple(getattr(found.operator, each) for each in family.names)
    guess = tuple(diagnosis.blur[each] for each in family.names)
    assert family.distance(used, true) < 0.06
    assert found.text.startswith(diagnosis.summary)
    assert f"in the picture's spectrum, and taken as {found.operator.words()}" in found.text
    assert found.search is not None
    assert found.search.converged
    assert found.search.parameters == family.named(used)
    assert found.search.path[0] == family.named(guess)
    assert found == Auto().find(Search(upload)), "equal inputs give equal answers"


@pytest.mark.parametrize(
    ("kind", "true", "name"),
    [("motion", (13.0, 20.0), "scan-1550"), ("defocus", (2.0,), "page-comfortaa")],
)
def test_the_spectrum_of_a_page_is_believed_near_the_diagnosis_only(kind, true, name):
    """A search that looks farther ends at half of the true size."""
    family = FAMILIES[kind]
    x_CHW = images.to_tensor(images.open_image((DOCUMENTS / f"{name}.png").read_bytes()))
    upload = blurred(x_CHW, family.blur(true), 0.02)
    guess = (0.85 * true[0], *true[1:])
    farther = blur_of(upload.image, family, guess, None, Effort(3, 3), widest=WIDEST)
    assert family.distance(farther.parameters, true) > 0.6
    found = BlindBlur().find(Search(upload))
    assert found.asked == "blind_blur"
    used = tuple(getattr(found.operator, each) for each in family.names)
    assert family.distance(used, true) < 0.2


def compressed(name, quality, kind, true):
    x = photo(name)
    y = FAMILIES[kind].blur(true).bind(tuple(x.shape))(x[None])[0]
    buffer = io.BytesIO()
    images.to_pil(y).save(buffer, "JPEG", quality=quality)
    return Picture(Image.open(buffer).convert("RGB"))


@pytest.mark.parametrize(
    ("true", "name", "quality"), [((13.0, 20.0), "coffee", 60), ((13.0, 20.0), "kleiber", 85)]
)
def test_beside_jpeg_traces_a_movement_is_measured_too(monkeypatch, true, name, quality):
    upload, family = compressed(name, quality, "motion", true), FAMILIES["motion"]
    diagnosis = too_long(upload, 1.15 * true[0])
    monkeypatch.setattr("aps_core.identify.kinds.auto.examine", lambda _: diagnosis)
    proposed, found = found_by(diagnosis, "auto"), Auto().find(Search(upload))
    assert isinstance(found.operator, Compose)
    assert isinstance(proposed.operator, Compose)
    blur, jpeg = found.operator.stages
    assert (blur.type, jpeg) == (family.operator, proposed.operator.stages[1])
    used = tuple(getattr(blur, each) for each in family.names)
    assert family.distance(used, true) < 0.06
    assert found.operator.words() in found.text


@pytest.mark.parametrize("path", [PHOTOS / "coffee.png", DOCUMENTS / "page-play.png"])
def test_a_disc_stays_as_diagnosed(path):
    x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
    upload = blurred(x_CHW, FAMILIES["defocus"].blur((4.0,)), 0.02)
    found = Auto().find(Search(upload))
    assert found == found_by(examine(upload), "auto")
    assert isinstance(found.operator, DefocusBlur)
    assert found.operator.radius == pytest.approx(4.0, rel=0.05)


def test_a_movement_that_the_spectrum_does_not_confirm_stays_as_diagnosed(monkeypatch):
    upload = blurred(photo("castle"), FAMILIES["motion"].blur((7.0, 75.0)), 0.02)
    proposed = found_by(examine(upload), "auto")
    far = Estimate(parameters=(30.0, 0.0), chains=[], path=[], deviation=0.0, converged=True)
    monkeypatch.setattr(photograph, "blur_of", lambda *_, **__: far)
    found = Auto().find(Search(upload))
    assert "motion" in proposed.operator.words()
    assert (found.operator, found.text) == (proposed.operator, proposed.text)
    assert any("spectrum does not confirm" in each for each in found.unsure)


@pytest.mark.parametrize(
    ("factor", "longest", "taken"),
    [(1.6, None, 2), (3.2, None, 2), (3.6, None, 4), (6.2, None, 4), (7.5, None, 8)],
)
def test_an_enlarged_picture_keeps_the_detail_it_has(factor, longest, taken):
    finding = Finding(
        kind="enlarged", wrong=True, text="", confidence="sure", values={"factor": factor}
    )
    proposed = without_search([finding], (768, 512), longest)
    assert proposed["operator"]["factor"] == taken
    assert proposed["working_size"] == 768


def test_an_enlarged_picture_that_the_job_reduces_is_less_enlarged():
    x = photo("castle")
    wide = images.to_pil(x).resize((3 * x.shape[2], 3 * x.shape[1]), Image.Resampling.BICUBIC)
    upload = Picture(wide)
    found = Auto().find(Search(upload, working_size=2 * x.shape[2]))
    assert found.operator == SuperResolution(factor=2)
    with pytest.raises(NothingToRestore):
        Auto().find(Search(upload, working_size=x.shape[2]))


@pytest.mark.parametrize(
    ("operator", "side"),
    [
        ({"type": "defocus_blur", "radius": 9.6}, 240),
        ({"type": "gaussian_blur", "sigma": 6.0}, 192),
        ({"type": "gaussian_blur", "sigma": 3.5}, None),
        ({"type": "jpeg", "quality": 20}, None),
        (
            {
                "type": "compose",
                "stages": [{"type": "gaussian_blur", "sigma": 6.0}, {"type": "jpeg"}],
            },
            192,
        ),
        (
            {
                "type": "compose",
                "stages": [{"type": "gaussian_blur", "sigma": 6.0}, {"type": "super_resolution"}],
            },
            None,
        ),
    ],
)
def test_wide_blurs_are_restored_at_the_size_they_leave(operator, side):
    assert resolved_side(operator, (384, 256)) == side


def test_a_wide_blur_is_restored_at_a_reduced_size_and_the_result_says_so():
    page = images.to_tensor(images.open_image((DOCUMENTS / "page-play.png").read_bytes()))
    upload = blurred(page, FAMILIES["defocus"].blur((9.0,)), 0.01)
    quick = {"type": "plug_and_play", "steps": 2, "inner_steps": 4, "first_steps": 12}
    spec = RestoreSpec(operator={"type": "auto"}, prior="embedded_documents", sampler=quick)
    pages = image_engine("embedded_documents")
    result = run(spec, Inputs(upload), pages)
    assert isinstance(result, PictureResult)
    assert result.found is not None
    side = result.found.working_size
    assert side is not None
    assert side < 0.8 * max(upload.size)
    assert max(result.pictures_BCHW.shape) == side
    assert any("so wide a blur leaves no finer detail" in note for note in result.notes)
    assert result.found.operator.each[0].model_dump()["radius"] == pytest.approx(9, rel=0.2)
    library = aps.restore(aps.Measurement(upload.image, "auto"), pages, sampler=quick)
    assert abs(max(library.pictures_BCHW.shape) - side) <= 1


def test_a_part_is_diagnosed_from_the_whole_picture(engine):
    """A small part shows too little of a wide movement."""
    whole = blurred(photo("raccoon"), FAMILIES["motion"].blur((13.0, 20.0)), 0.02)
    part = Picture(whole.image.crop((96, 96, 160, 160)))
    alone = examine(part).blur
    assert alone["family"] != "motion" or alone["length"] < 10, "less than there was"
    result = run(auto(), Inputs(part, whole=whole), engine)
    assert isinstance(result, PictureResult)
    assert result.found is not None
    assert isinstance(result.found.operator, LinearMotionBlur)
    assert result.found.operator.length == pytest.approx(13, abs=1)
    assert result.found.operator.angle == pytest.approx(20, abs=5)
    assert result.pictures_BCHW.shape[-2:] == (64, 64)
    given = aps.Measurement(part.image, "auto", whole=whole.image)
    assert aps.restore(given, engine, sampler=auto().sampler).found == result.found
    with pytest.raises(InvalidSpec, match="smaller than the image"):
        auto().check_sizes(Inputs(whole, whole=part))


def test_what_a_part_needs_follows_its_own_size():
    """The working size, and whether JPEG is undone, depend on what is restored."""
    small = images.to_pil(photo("chelsea")).resize((320, 320))
    whole = Picture(small.resize((640, 640), Image.Resampling.NEAREST))
    search = Search(whole, part=(128, 96))
    found = Auto().find(search)
    assert found.operator.type == "super_resolution"
    assert found.working_size == 128
    assert Auto().find(Search(whole)).working_size == 640


def test_a_blur_that_was_found_is_drawn_as_a_point_of_light(engine, upload):
    result, operator = restored(auto(), upload, engine)
    files = {file.name: file.data for file in result.files()}
    light = np.asarray(Image.open(io.BytesIO(files["blur.png"])).convert("L"), dtype=float)
    centre = light.shape[0] // 2
    assert light.shape == (2 * operator.reach + 1,) * 2
    assert light.max() == light[centre, centre] == 255
    assert light[centre, centre + 2] == pytest.approx(255 * np.exp(-2 / operator.sigma**2), abs=2)
    named, _ = restored(auto(operator=operator), upload, engine)
    assert "blur.png" not in [file.name for file in named.files()], "its words say it all"


def test_a_resumed_run_does_not_guess_anew(engine, upload, monkeypatch):
    saved = []
    whole, _ = restored(
        auto(), upload, engine, on_step=lambda step: saved.append(step.checkpoint())
    )

    def guess(*_):
        raise AssertionError("guessed anew")

    monkeypatch.setattr(Auto, "find", guess)
    rest, _ = restored(auto(), upload, engine, resume=saved[0])
    assert rest.resumed_from_step == 1
    assert rest.found == whole.found is not None
    assert rest.spec == whole.spec
    assert torch.equal(rest.codes_BL, whole.codes_BL)
    with pytest.raises(AssertionError, match="guessed anew"):
        run(auto(seed=1), Inputs(upload), engine, resume=saved[0])  # another job's checkpoint


def test_a_picture_with_nothing_wrong_is_not_changed(engine):
    clean = Picture(images.to_pil(truth()))
    with pytest.raises(NothingToRestore, match=r"Nothing seems to be wrong.*name the operator"):
        run(auto(), Inputs(clean), engine)
    clipped = Picture(images.to_pil(truth("astronaut")))
    with pytest.raises(NothingToRestore, match=r"11% of the pixels are clipped.*knows no operator"):
        run(auto(), Inputs(clipped), engine)


def test_an_enlarged_upload_is_restored_at_its_own_size_at_most(engine):
    small = images.to_pil(truth(side=32))
    upload = Picture(small.resize((64, 64), Image.Resampling.NEAREST))
    result, operator = restored(auto(), upload, engine)
    assert operator.type == "super_resolution"
    assert result.pictures_BCHW.shape[-2:] == auto().output_size((64, 64)) == (64, 64)
    smaller, _ = restored(auto(working_size=56), upload, engine)
    assert max(smaller.pictures_BCHW.shape[-2:]) <= 56
    library = aps.restore(aps.Measurement(upload.image, "auto"), engine, sampler=SAMPLER)
    assert library.found == result.found
    assert library.image.size == (64, 64)


def test_a_transparent_upload_is_inpainted(engine):
    image = images.to_pil(truth()).convert("RGBA")
    image.paste((0, 0, 0, 0), (20, 20, 40, 40))
    assert restored(auto(), Picture(image), engine)[1].type == "inpainting"


def test_sizes_checks_and_estimates_need_neither_operator_nor_torch():
    code = """
import sys
from PIL import Image
from aps_core.imaging.images import Picture
from aps_core.tasks.estimate import check_size
from aps_core.tasks import Inputs, RestoreSpec
spec = RestoreSpec.model_validate({"operator": {"type": "auto"}}).resolved()
spec.check_inputs(Inputs(Picture(Image.new("RGB", (70, 50)))))
cost = check_size(spec, (70, 50), 10_000, 1e-3)
assert cost.output == (70, 50) and cost.seconds > 0, cost
assert spec.checkpoints == () and spec.mask_slot(Inputs()) is None
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_it_stands_alone_and_degrades_nothing():
    with pytest.raises(ValidationError, match="'auto': an operator that identifies"):
        OperatorSpec.named("compose").model_validate({"stages": [{"type": "auto"}]})
    with pytest.raises(InvalidSpec, match="cannot degrade a picture"):
        Auto().bind((3, 8, 8))
    mask = Picture(Image.new("L", (64, 64), 255))
    with pytest.raises(InvalidSpec, match="takes no mask"):
        auto().check_sizes(Inputs(Picture(Image.new("RGB", (64, 64))), mask))


def aps_command(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_the_command_line_says_what_it_found_and_replays_it(tmp_path, upload, monkeypatch):
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    upload.image.save(buffer, "PNG")
    Path("soft.png").write_bytes(buffer.getvalue())
    quick = ("--sampler", "aps", "--steps", 1, "--inner-steps", 1, "--device", "cpu")
    done = aps_command("restore", "soft.png", "--operator", "auto", *quick, "-o", "out.png")
    assert done.exit_code == 0, done.output
    assert "Soft: a Gaussian blur of about 2" in done.output
    replayed = aps_command("replay", "out.json", "soft.png", "-o", "again")
    assert replayed.exit_code == 0, replayed.output
    assert "identical bit for bit" in replayed.output


def test_the_result_of_a_page_warns_that_letters_may_be_guesses(engine, upload):
    page = Image.open(PHOTOS.parent / "documents/page-karla.png").convert("RGB")
    result, _ = restored(
        auto(operator={"type": "denoise"}), Picture(page.crop((0, 0, 64, 64))), engine
    )
    assert "may be guesses" in result.metrics()["text_notice"]
    assert result.text_notice == result.sidecar()["text_notice"] == result.notes[-1]
    assert restored(auto(operator={"type": "denoise"}), upload, engine)[0].text_notice == ""


def test_blind_estimates_the_blur_below_jpeg_traces():
    """Without its rounding as noise, the estimate is less than half of the true width."""
    upload = compressed("chelsea", 50, "gaussian", (1.5,))
    found = Blind(kind="gaussian").find(Search(upload))
    assert isinstance(found.operator, Compose)
    blur, jpeg = found.operator.stages
    assert isinstance(blur, GaussianBlur)
    assert blur.sigma == pytest.approx(1.5, rel=0.15)
    assert isinstance(jpeg, JPEG)
    assert jpeg.quality == pytest.approx(50, abs=3)
    assert found.asked == "blind"
    assert found.operator.words() in found.text
    alone = BlindBlur(kind="gaussian").find(Search(upload))
    assert alone.operator == blur
    unaware = blur_of(upload.image, FAMILIES["gaussian"], (2.0,), None, Effort(3, 3))
    assert unaware.parameters[0] < 1.5 / 2


def test_blind_takes_the_rest_from_the_diagnosis():
    x = photo("castle")
    small = images.to_pil(x).reduce(2)
    enlarged = Picture(small.resize((small.width * 2, small.height * 2), Image.Resampling.BICUBIC))
    proposed, found = found_by(examine(enlarged), "blind"), Blind().find(Search(enlarged))
    assert proposed.operator.type == "super_resolution"
    told = f"{proposed.text} No blur was found."
    assert found == proposed.model_copy(update={"text": told})
    named = Blind(kind="gaussian").find(Search(enlarged))
    assert named.operator.type == "gaussian_blur", "the two look alike: the named kind is taken"
    assert named.working_size is None
    with pytest.raises(NothingToRestore):
        Blind().find(Search(images.Picture(images.to_pil(x))))
