"""The evaluation: cases, variants, resuming, comparison tables, the paper's sets of photographs."""

import csv
import json
import math
from dataclasses import replace
from statistics import mean

import pytest
import torch

from aps_core.engines.engine import ImageEngine
from aps_core.errors import InvalidSpec
from aps_core.evaluation import (
    BASELINES,
    Plan,
    Row,
    Setup,
    Variant,
    evaluate,
    make_case,
    photographs,
    printed,
    read_rows,
    run_method,
    strengths,
)
from aps_core.evaluation.paper import experiments
from aps_core.evaluation.photographs import ffhq, imagenet
from aps_core.evaluation.run import REFERENCES
from aps_core.evaluation.sheets import decided_only
from aps_core.evaluation.suite import run_suite
from aps_core.evaluation.tables import ablations, against, paired_interval, summary
from aps_core.imaging import images
from aps_core.losses.measurement import MeasurementLoss
from aps_core.priors.embedded.image import EmbeddedPrior
from aps_core.samplers.aps import APSConfig
from aps_core.types import MASK
from tests.core.toys import FlatPrior

CONFIG = Setup(APSConfig(steps=2, inner_steps=2), MeasurementLoss(perceptual_weight=0.0))


@pytest.fixture(scope="module")
def engine():
    return ImageEngine(EmbeddedPrior(), FlatPrior(), torch.device("cpu"))


@pytest.fixture(scope="module")
def photos():
    generator = torch.Generator().manual_seed(0)
    return [
        (
            name,
            torch.nn.functional.interpolate(
                torch.rand(1, 3, 8, 8, generator=generator) * 2 - 1, (64, 64), mode="bicubic"
            )[0].clamp(-1, 1),
        )
        for name in "ab"
    ]


def write(folder, name, side=40, value=0.0):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    images.to_pil(torch.full((3, side, side + 6), value)).save(path)


def test_an_interrupted_run_resumes_and_equal_variants_run_once(engine, photos, tmp_path):
    lines = []
    some = Plan(("sr4",), (Variant("aps"), Variant("svdd")))
    evaluate(engine, CONFIG, photos, tmp_path, some, report=lambda row: lines.append(row.key))
    assert len(lines) == some.size(2) == 2 * (2 + len(REFERENCES))
    table = (tmp_path / "per_image.csv").read_text()
    more = Plan(
        ("sr4",),
        (Variant("aps", {"inner_steps": 2}), Variant("aps", {"inner_steps": 3}), Variant("svdd")),
    )
    rows = evaluate(
        engine, CONFIG, photos, tmp_path, more, report=lambda row: lines.append(row.key)
    )
    assert [key[-1] for key in lines[some.size(2) :]] == [
        "aps inner_steps=3"
    ] * 2  # M = 2 is what "aps" was run with
    assert (tmp_path / "per_image.csv").read_text().startswith(table)
    assert len(rows) == more.size(2)
    stored = read_rows(tmp_path / "per_image.csv", Row)
    assert [row.key for row in stored] == lines
    assert all(math.isnan(row.lpips) and math.isnan(row.gpu_gib) for row in stored)
    with (tmp_path / "trajectories.csv").open() as file:
        decodes = [
            int(line["decodes"])
            for line in csv.DictReader(file)
            if (line["image"], line["method"]) == ("a", "aps inner_steps=3")
        ]
    assert decodes == [3, 6]
    (tmp_path / "per_image.csv").write_text("protocol,task\n")
    with pytest.raises(InvalidSpec, match="another version"):
        read_rows(tmp_path / "per_image.csv", Row)


def test_a_run_depends_only_on_settings_and_seed(engine, photos):
    case = make_case(engine, CONFIG, "native", "sr4", photos[0][0], photos[0][1], 0.05, 0)
    assert case.y_CHW.shape == (3, 16, 16)
    for method in EmbeddedPrior.samplers():
        first, decodes, _ = run_method(engine, CONFIG, case, Variant(method), 3)
        assert torch.equal(first, run_method(engine, CONFIG, case, Variant(method), 3)[0]), method
        assert decodes == {"prior_only": 1, "carried_evidence": 25}.get(method, 5)
        assert first.shape == (1, 3, 64, 64)
    assert run_method(engine, CONFIG, case, Variant("aps", samples=3), 0)[0].shape == (3, 3, 64, 64)


def test_settings_tuned_on_a_prior_apply_unless_overridden(engine, photos, monkeypatch):
    monkeypatch.setattr(EmbeddedPrior, "tuned", {"svdd": {"candidates": 5}})
    case = make_case(engine, CONFIG, "native", "sr4", photos[0][0], photos[0][1], 0.05, 0)
    assert run_method(engine, CONFIG, case, Variant("svdd"), 0)[1] == 11
    assert run_method(engine, CONFIG, case, Variant("svdd", settings={"candidates": 1}), 0)[1] == 3


def test_upsampled_protocols_are_compared_at_the_original_size(engine, photos):
    case = make_case(engine, CONFIG, "upsampled", "sr4", photos[0][0], photos[0][1], 0.05, 0)
    assert case.y_CHW.shape == (3, 32, 32)
    x = run_method(engine, CONFIG, case, Variant("aps"), 0)[0]
    assert x.shape[-2:] == (128, 128)
    assert case.at_truth_size(x).shape[-2:] == (64, 64)


def test_biharmonic_filling_continues_a_slope(engine, photos):
    rows = torch.linspace(-0.8, 0.8, 32)[:, None].expand(3, 32, 32)
    case = make_case(engine, CONFIG, "native", "inpainting70", "slope", rows, 0.0, 0)
    filled = BASELINES["biharmonic"](case)
    assert float((filled[0] - rows)[:, 4:-4, 4:-4].abs().max()) < 0.02
    assert float((BASELINES["input"](case)[0] - rows)[:, 4:-4, 4:-4].abs().max()) > 0.05


def test_degradation_strengths_scale_with_the_size():
    assert strengths("motion_blur", 128)["kernel_size"] == 15
    assert "kernel_size" not in strengths("motion_blur", 256)  # the paper's, the operator's default
    with pytest.raises(InvalidSpec, match="no task 'sr5'"):
        strengths("sr5", 128)


def test_the_suite_writes_all_tables_with_the_published_values(engine, photos, tmp_path):
    told = []
    chosen = [
        experiment
        for experiment in experiments(CONFIG.sampler, ("native",))
        if experiment.name not in ("general", "ablations")
    ]
    text = run_suite(
        engine,
        CONFIG,
        {"photos": photos},
        chosen,
        tmp_path,
        progress=lambda dataset, name, row: told.append(name),
    )
    assert {"linear", "steps", "perceptual", "same_prior", "noise"} == set(told)
    assert (
        "| APS-L | 0.186 / 28.83 | 0.241 / 29.50 | 0.224 / 25.74 | 0.282 / 26.35 | - | - |" in text
    )
    assert "ffhq: not reproduced here: needs the weights mmada-8b-base, magvitv2" in text
    assert "LPIPS not computed here: needs the weights vgg16 and lpips-vgg" in text
    assert "| 100 (1 of the recommended) | 25.71 / 0.742 / 0.247 |" in text
    assert "needs the weights dream-7b-instruct, skywork-reward-v2-qwen3-0.6b, qwen3-8b" in text
    for file in ("linear.png", "linear-misfit.png", "steps.png", "noise.png", "anchors.png"):
        assert (tmp_path / "photos" / file).stat().st_size > 5000, file
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["settings"]["inner_steps"] == 2
    assert record["rows"]["photos"]["linear"][0]["lpips"] is None
    told.clear()
    again = run_suite(
        engine,
        CONFIG,
        {"photos": photos},
        chosen,
        tmp_path,
        progress=lambda dataset, name, row: told.append(name),
    )
    assert (told, again) == ([], text)


def test_every_published_row_belongs_to_a_sweep():
    names = {experiment.name: experiment.plan for experiment in experiments(CONFIG.sampler)}
    weights = {f"{variant.loss['perceptual_weight']:g}" for variant in names["perceptual"].variants}
    assert weights == {weight for by_weight in printed.PERCEPTUAL.values() for weight in by_weight}
    assert [f"{sigma:g}" for sigma in names["noise"].sigmas] == list(printed.NOISE["APS"])
    assert [
        variant.changes["inner_steps"] for variant in experiments(APSConfig())[2].plan.variants
    ] == [int(m) for m in printed.STEPS]


def test_ablations_are_paired_with_the_recommended_settings(engine, photos, tmp_path):
    """Every listed variant is an existing setting that differs from the reference. A table row is a
    mean over photographs and tasks.
    """
    plan = {experiment.name: experiment.plan for experiment in experiments(APSConfig())}[
        "ablations"
    ]
    recommended = APSConfig(**EmbeddedPrior.recommended)
    chosen = {
        (APSConfig(**{**recommended.model_dump(), **variant.changes}), str(variant.loss))
        for variant in plan.variants
    }
    assert len(chosen) == len(plan.variants)
    few = replace(
        plan, tasks=("hdr", "sr4"), variants=(Variant("aps"), Variant("aps", loss={"norm": "l2"}))
    )
    rows = evaluate(engine, CONFIG, photos, tmp_path, few)
    table = ablations([row for row in rows if row.method.startswith("aps")])
    value = {(row.task, row.image, row.method): row.psnr for row in rows}
    difference = mean(
        value[task, image, "aps norm=l2"] - value[task, image, "aps"]
        for task in few.tasks
        for image in "ab"
    )
    assert f"{difference:+.2f} [" in table.splitlines()[-1]
    assert "[" not in table.splitlines()[-2], "the reference differs from nothing"


def test_paired_intervals():
    middle, low, high = paired_interval([1.0, 2.0, 3.0, 2.0, 1.5, 2.5])
    assert middle == 2.0
    assert 1.0 < low < 2.0 < high < 3.0
    assert paired_interval([1.0, 2.0, 3.0]) == paired_interval([1.0, 2.0, 3.0])
    assert math.isnan(paired_interval([1.0])[1])


def test_summaries_count_what_is_missing_and_compare_pairs(engine, photos, tmp_path):
    rows = evaluate(
        engine, CONFIG, photos, tmp_path, Plan(("hdr",), (Variant("aps"), Variant("prior_only")))
    )
    text = summary([row for row in rows if (row.image, row.method) != ("b", "prior_only")])
    assert "(n=1)" in text
    difference = {row.method: row.psnr for row in rows if row.image == "a"}
    one = against([row for row in rows if row.image == "a"], "aps")
    assert f"{difference['aps'] - difference['prior_only']:+.2f} [-, -]" in one


def test_undecided_tokens_are_drawn_faded():
    x_CHW = torch.ones(3, 16, 16)
    shown = decided_only(x_CHW, torch.tensor([0, MASK, 1, MASK]), (2, 2))
    assert (shown[:, :, :8] == 1).all()
    assert (shown[:, :, 8:] < 0.85).all()


def test_selections_of_the_papers_data_sets(tmp_path):
    for number in range(103):
        write(tmp_path / "ffhq" / f"{number // 50 * 1000:05}", f"{number:05}.png")
    chosen = ffhq(tmp_path / "ffhq", 32)
    assert [name for name, _ in chosen] == [f"{number:05}" for number in range(100)]
    assert chosen[0][1].shape == (3, 32, 32)
    index = tmp_path / "list.txt"
    index.write_text("".join(f"val_{label:08}.PNG {label}\n" for label in range(40)))
    for label in (0, 10, 20, 30, 31):
        write(tmp_path / "imagenet" / f"n{label}", f"val_{label:08}.PNG", value=label / 40)
    assert [name for name, _ in imagenet(tmp_path / "imagenet", index, 32)] == [
        f"val_{label:08}" for label in (0, 10, 20, 30)
    ]
    assert len(imagenet(tmp_path / "imagenet", index, 32, limit=2)) == 2
    (tmp_path / "imagenet" / "n20" / "val_00000020.PNG").unlink()
    with pytest.raises(InvalidSpec, match=r"lacks 1 of the 4 pictures .* val_00000020"):
        imagenet(tmp_path / "imagenet", index, 32)
    index.write_text("val_1.PNG zero\n")
    with pytest.raises(InvalidSpec, match=r"line 1: 'val_1\.PNG zero' is not 'FILE CLASS'"):
        imagenet(tmp_path / "imagenet", index, 32)
    with pytest.raises(InvalidSpec, match="holds no PNG"):
        photographs(tmp_path, 32)
    with pytest.raises(InvalidSpec, match="holds 0 pictures"):
        ffhq(tmp_path / "imagenet" / "n20", 32)
