"""The guide task on the embedded text models."""

from typing import Any

import pytest
from pydantic import ValidationError

from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.runtime.engine import Engine, ImageEngine, TextEngine
from aps_core.runtime.estimate import check_size
from aps_core.tasks import GuideSpec, Inputs, RestoreSpec, run
from aps_core.tasks.guide import UNDECIDED

SMALL = {"max_new_tokens": 16, "steps": 8}
SPEC = GuideSpec(prompt="What is oak?", sampler=SMALL, compare_unguided=True)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("embedded_text")


@pytest.fixture(scope="module")
def whole(engine):
    """Result and progress of an uninterrupted run."""
    seen = []
    return run(SPEC, Inputs(), engine, seen.append), seen


def test_settings_left_out_follow_the_prior():
    spec = GuideSpec(prompt="x", sampler={"temperature": 1}).resolved()
    assert (spec.sampler.max_new_tokens, spec.sampler.temperature) == (32, 1)
    assert spec.reward.type == "log_likelihood"
    assert GuideSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": ""},
        {},
        {"prompt": "x", "reward": {"type": "praise"}},
        {"prompt": "x", "sampler": {"steps": 0}},
    ],
)
def test_inconsistent_specs_are_rejected(wrong):
    with pytest.raises(ValidationError):
        GuideSpec.model_validate(wrong)


def test_each_task_rejects_unsuitable_priors_and_inputs(engine):
    with pytest.raises(InvalidSpec, match="embedded_text"):
        GuideSpec(prompt="x", prior="embedded").check(None, None, False)
    with pytest.raises(InvalidSpec, match="no picture"):
        GuideSpec(prompt="x").check((64, 64), None, False)
    restore = RestoreSpec(operator={"type": "hdr"}, prior="embedded_text")
    with pytest.raises(InvalidSpec, match="cannot use the prior"):
        restore.check((64, 64), None, False)
    with pytest.raises(InvalidSpec, match="cannot use the prior"):
        run(restore, Inputs(), engine)
    with pytest.raises(InvalidSpec, match="picture"):
        RestoreSpec(operator={"type": "hdr"}).check(None, None, False)
    with pytest.raises(InvalidSpec, match="embedded_text"):
        ImageEngine.load("embedded_text")


def test_a_prompt_longer_than_the_prior_reads_is_refused():
    with pytest.raises(InvalidSpec, match="the prior reads at most 128; shorten it"):
        GuideSpec(prompt="why is the oak tall? " * 60).check(None, None, False)
    with pytest.raises(ValidationError):
        GuideSpec(prompt="  ")


def test_cost_needs_no_picture(engine):
    cost = check_size(SPEC, None, max_pixels=1, seconds_per_token=0.5)
    assert (cost.output, cost.tokens, cost.seconds) == (None, 16, 16 * 8 * 2 * 0.5)
    assert isinstance(engine, TextEngine)
    assert engine.seconds_per_token() > 0


def test_progress_contains_the_tokens_decided_so_far(whole):
    _, seen = whole
    assert [progress.step for progress in seen] == list(range(1, 17))
    assert [progress.guided for progress in seen] == [True] * 8 + [False] * 8
    masks = [progress.text.count(UNDECIDED) for progress in seen]
    assert masks[:8] == sorted(masks[:8], reverse=True)
    assert masks[7] == masks[15] == 0 < masks[0]
    for progress in seen[:8]:
        assert len(progress.reward_curve) == 3
    assert sorted(place for progress in seen[:8] for place in progress.decided) == list(range(16))


def test_the_result_contains_both_answers(whole):
    result, seen = whole
    told = result.sidecar()
    assert told["answer"]["guided"]
    assert not told["unguided"]["guided"]
    assert told["answer"]["ids"] == seen[7].ids
    assert told["unguided"]["ids"] == seen[15].ids
    assert len(told["reward_curve"]) == 8


def test_the_unguided_answer_is_that_of_a_job_without_guidance(engine, whole):
    alone: Any = run(GuideSpec(prompt=SPEC.prompt, sampler=SMALL, guidance=False), Inputs(), engine)
    assert alone.answer == whole[0].unguided
    assert alone.unguided is None


@pytest.mark.parametrize("step", [3, 8, 11])
def test_a_job_resumes_in_either_run(engine, whole, step):
    result, seen = whole
    fresh = []
    again: Any = run(SPEC, Inputs(), engine, fresh.append, resume=seen[step - 1].checkpoint())
    assert [progress.step for progress in fresh] == list(range(step + 1, 17))
    assert (again.answer, again.unguided, again.resumed_from_step) == (
        result.answer,
        result.unguided,
        step,
    )


def test_the_hook_can_stop_a_job(engine):
    with pytest.raises(SamplingCancelled):
        run(SPEC, Inputs(), engine, lambda progress: False)


def test_a_long_job_gets_a_note(engine):
    result = run(
        GuideSpec(prompt="word " * 100, sampler={"max_new_tokens": 40, "steps": 1}),
        Inputs(),
        engine,
    )
    assert "128" in result.notes[0]


def test_guidance_raises_the_embedded_reward(engine):
    gains = []
    for seed in range(6):
        spec = GuideSpec(
            prompt="Write a sentence about money.",
            seed=seed,
            compare_unguided=True,
            sampler={"max_new_tokens": 16, "steps": 16},
        )
        result: Any = run(spec, Inputs(), engine)
        gains.append(result.answer.reward - result.unguided.reward)
    assert sum(gains) / len(gains) > 0.1, gains
