"""The guide task on the embedded text models."""

from itertools import pairwise, product
from statistics import median
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from aps_core.engines.engine import Engine, ImageEngine, TextEngine
from aps_core.errors import InvalidSpec, SamplingCancelled
from aps_core.priors import TextModels
from aps_core.priors.dream.network import load_dream
from aps_core.priors.embedded.text import EmbeddedTextPrior
from aps_core.tasks import GuideSpec, Inputs, RestoreSpec, run
from aps_core.tasks.answers import UNDECIDED, settled_text
from aps_core.tasks.estimate import check_size
from aps_core.text.chat import Message, chat_of
from aps_core.text.config import TextConfig
from aps_core.text.rewards.loading import load_reward
from tests.engines import text_engine

SMALL = {"max_new_tokens": 16, "steps": 8}
SPEC = GuideSpec(prompt="What is oak?", sampler=SMALL, compare_unguided=True)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return text_engine()


@pytest.fixture(scope="module")
def whole(engine):
    """Result and progress of an uninterrupted run."""
    seen = []
    return run(SPEC, Inputs(), engine, seen.append), seen


def test_settings_left_out_follow_the_prior():
    spec = GuideSpec(prompt="x", sampler={"temperature": 1}).resolved()
    assert (spec.sampler.max_new_tokens, spec.sampler.temperature) == (48, 1)
    assert spec.reward.type == "sequence_classifier"
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


def test_a_reward_that_the_prior_cannot_compute_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(EmbeddedTextPrior, "other_kinds", ())
    spec = GuideSpec(prompt="x", reward={"type": "log_likelihood"})
    with pytest.raises(InvalidSpec, match=r"reads a language model.*reward\.model"):
        _ = spec.checkpoints
    named = GuideSpec(prompt="x", reward={"type": "sequence_classifier", "model": "mine"})
    assert named.checkpoints == ("mine",)
    for wrong in ("../mine", "a/b", ""):
        with pytest.raises(ValidationError, match="model"):
            GuideSpec(prompt="x", reward={"type": "sequence_classifier", "model": wrong})


def test_a_prompt_longer_than_the_prior_reads_is_refused():
    with pytest.raises(InvalidSpec, match="the prior reads at most 77; shorten it"):
        GuideSpec(prompt="why is the oak tall? " * 60).check(None, None, False)
    with pytest.raises(ValidationError):
        GuideSpec(prompt="  ")


def test_a_prompt_leaves_room_for_a_token_of_the_answer(engine):
    """77 tokens, the two around a prompt, and one of the answer are the 80 of training."""
    longest, longer = ("a" + " why" * count for count in (76, 77))
    assert len(engine.prior.encode(longest)) == engine.spec.native_length - 1
    GuideSpec(prompt=longest).check(None, None, False)
    with pytest.raises(InvalidSpec, match=r"has 78 tokens, .* 77; shorten it \(309 characters"):
        GuideSpec(prompt=longer).check(None, None, False)


def test_cost_needs_no_picture(engine):
    cost = check_size(SPEC, None, max_pixels=1, seconds_per_token=0.5)
    assert (cost.output, cost.tokens, cost.seconds) == (None, 16, 16 * 8 * 2 * 0.5)
    assert isinstance(engine, TextEngine)
    assert engine.seconds_per_token() > 0


def test_progress_contains_the_tokens_decided_so_far(whole):
    _, seen = whole
    assert [progress.step for progress in seen] == list(range(1, 17))
    assert [progress.guided for progress in seen] == [True] * 8 + [False] * 8
    masks = [progress.rows[0].text.count(UNDECIDED) for progress in seen]
    assert masks[:8] == sorted(masks[:8], reverse=True)
    assert masks[7] == masks[15] == 0 < masks[0]
    for progress in seen[:8]:
        assert len(progress.reward_curve) == 3
    assert sorted(place for progress in seen[:8] for place in progress.rows[0].decided) == list(
        range(16)
    )


def test_the_result_contains_both_answers(whole):
    result, seen = whole
    told = result.sidecar()
    assert told["answer"]["guided"]
    assert not told["unguided"]["guided"]
    assert told["answer"]["ids"] == seen[7].ids[0]
    assert told["unguided"]["ids"] == seen[15].ids[0]
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
        GuideSpec(prompt="word " * 60, sampler={"max_new_tokens": 40, "steps": 1}),
        Inputs(),
        engine,
    )
    assert "80" in result.notes[0]


def test_guidance_raises_the_embedded_reward(engine):
    """With prompts whose answers gain on every processor; those of others hang on rounding."""
    gains = []
    for prompt, seed in product(["Write about a garden.", "Tell me about the sea."], range(4)):
        spec = GuideSpec(
            prompt=prompt,
            seed=seed,
            compare_unguided=True,
            sampler={"max_new_tokens": 16, "steps": 16},
        )
        result: Any = run(spec, Inputs(), engine)
        gains.append(result.answer.reward - result.unguided.reward)
    assert median(gains) > 0.5, gains  # one bad answer outweighs many good ones in a mean


def test_the_best_of_several_answers_sampled_together(engine):
    seen = []
    spec = GuideSpec(
        prompt="Write a story about a dog.",
        num_samples=3,
        compare_unguided=True,
        sampler={**SMALL, "temperature": 0.7},
        seed=2,
    )
    result: Any = run(spec, Inputs(), engine, seen.append)
    for answers in (result.answers, result.unguided_answers):
        assert len(answers) == 3
        assert len({answer.text for answer in answers}) > 1
    assert result.answer.reward == max(answer.reward for answer in result.answers)
    told = result.sidecar()
    assert [answer["text"] for answer in told["answers"]] == [a.text for a in result.answers]
    mean = sum(answer.reward for answer in result.answers) / 3
    assert told["mean_reward"] == pytest.approx(mean)
    assert result.metrics()["mean_reward"] == pytest.approx(mean)
    names = [file.name for file in result.files()]
    assert names == ["answer.txt", "unguided.txt", *(f"answer-{i}.txt" for i in (1, 2, 3))]
    assert all(len(progress.rows) == 3 for progress in seen)
    event = seen[0].event()
    assert [row["reward"] is None for row in event["rows"]] == [False] * 3
    assert event["text"] == event["rows"][0]["text"]
    assert spec.work(None) == (16 * 3, 8 * 2)


@pytest.mark.parametrize("step", [3, 8, 11])
def test_several_answers_resume_in_either_run(engine, step):
    spec = GuideSpec(prompt="What is oak?", num_samples=2, compare_unguided=True, sampler=SMALL)
    seen = []
    whole: Any = run(spec, Inputs(), engine, seen.append)
    again: Any = run(spec, Inputs(), engine, resume=seen[step - 1].checkpoint())
    assert (again.answers, again.unguided_answers) == (whole.answers, whole.unguided_answers)


def test_a_job_that_reuses_keys_resumes_and_states_its_error(engine):
    spec = GuideSpec(
        prompt="What is oak?",
        more_prompts=("What is a very old lantern?",),
        sampler={**SMALL, "block_length": 8, "reuse": "dual"},
    )
    seen = []
    whole: Any = run(spec, Inputs(), engine, seen.append)
    again: Any = run(spec, Inputs(), engine, resume=seen[1].checkpoint())
    assert again.answers == whole.answers
    told = whole.sidecar()["reuse"]
    assert 0.4 < told["computed_share"] < 0.9
    assert told["compared"] > 0
    assert 0 <= told["mean_distance"] <= 1
    assert "approximation" in whole.notes[-1]
    exact: Any = run(spec.model_copy(update={"sampler": TextConfig(**SMALL)}), Inputs(), engine)
    assert exact.sidecar()["reuse"] is None
    assert not exact.notes


def test_more_blocks_than_steps_are_refused():
    with pytest.raises(InvalidSpec, match="block_length"):
        GuideSpec(prompt="x", sampler={**SMALL, "block_length": 1}).check(None, None, False)


CHAT = (Message(role="system", content="Be brief."), Message(role="user", content="Why?"))
PROMPTS = ("What is a very old lantern?", CHAT)


@pytest.fixture(scope="module")
def exact():
    """The embedded models in float32: rounding does not depend on the number of rows."""
    device, spec = torch.device("cpu"), EmbeddedTextPrior()
    prior = load_dream(spec.folders()[0], device, torch.float32)
    reward = load_reward(spec.folders()[1], prior, device, torch.float32)
    return TextEngine(spec, TextModels(prior, reward), device)


def test_several_prompts_are_answered_in_one_batch(exact):
    """Padding changes no answer."""
    engine, seen = exact, []
    # no random numbers, and no equal confidences of positions where one token passes the filter
    sampler = {**SMALL, "temperature": 0, "alg": "entropy", "top_p": 1, "top_k": None}
    spec = GuideSpec(
        prompt=SPEC.prompt, more_prompts=PROMPTS, num_samples=2, sampler=sampler, guidance=False
    )
    result: Any = run(spec, Inputs(), engine, seen.append)
    assert [answer.prompt for answer in result.answers] == [0, 0, 1, 1, 2, 2]
    assert [row.prompt for row in seen[0].rows] == [0, 0, 1, 1, 2, 2]
    assert [answer.prompt for answer in result.best] == [0, 1, 2]
    for prompt, best in zip(spec.prompts, result.best, strict=True):
        alone: Any = run(
            GuideSpec(prompt=prompt, sampler=sampler, guidance=False), Inputs(), engine
        )
        assert best.text == alone.answer.text
        assert best.reward == pytest.approx(alone.answer.reward, abs=1e-4)
    told = result.sidecar()
    assert [answer["text"] for answer in told["best_answers"]] == [
        best.text for best in result.best
    ]
    files = {file.name: file.data for file in result.files()}
    assert files["best-2.txt"].decode() == result.best[1].text
    assert files["answer.txt"] == files["best-1.txt"]
    assert spec.work(None) == (16 * 6, 8)
    assert GuideSpec.model_validate_json(spec.model_dump_json()) == spec


def test_every_prompt_of_a_batch_is_guided_by_its_own_reward(exact):
    engine = exact
    spec = GuideSpec(prompt=SPEC.prompt, more_prompts=PROMPTS, sampler=SMALL, compare_unguided=True)
    seen = []
    whole: Any = run(spec, Inputs(), engine, seen.append)
    for answer in whole.answers:
        text = engine.text_reward(spec.resolved().reward, chat_of(spec.prompts[answer.prompt]))
        alone = text.of(torch.tensor([answer.ids]), [answer.text])
        assert answer.reward == pytest.approx(alone.item(), abs=1e-4)
    again: Any = run(spec, Inputs(), engine, resume=seen[2].checkpoint())
    assert (again.answers, again.unguided_answers) == (whole.answers, whole.unguided_answers)


def test_too_many_answers_for_one_job_are_refused():
    with pytest.raises(ValidationError, match=r"3 prompts times num_samples 8 are 24 answers"):
        GuideSpec(prompt="x", more_prompts=("y", "z"), num_samples=8)
    with pytest.raises(InvalidSpec, match="the prior reads at most"):
        GuideSpec(prompt="x", more_prompts=("why is the oak tall? " * 60,)).check(None, None, False)


def test_what_is_settled_is_the_beginning_of_the_answer(engine):
    """Clients that stream an answer never have to take text back."""
    seen = []
    spec = GuideSpec(prompt="What is oak?", num_samples=2, sampler=SMALL)
    result: Any = run(spec, Inputs(), engine, seen.append)
    for number, answer in enumerate(result.answers):
        settled = [progress.rows[number].settled for progress in seen]
        assert all(later.startswith(early) for early, later in pairwise(settled))
        assert settled[-1] == answer.text
        pieces = {
            place: piece
            for progress in seen
            for place, piece in zip(
                progress.rows[number].decided, progress.rows[number].pieces, strict=True
            )
        }
        assert sorted(pieces) == list(range(16))
        assert pieces[3] == engine.prior.tokenizer.decode([answer.ids[3]])


def test_an_answer_ends_before_a_stop_string(engine):
    done: Any = run(GuideSpec(prompt="What is oak?", sampler=SMALL), Inputs(), engine)
    whole = done.answer
    word = whole.text.split()[2]
    seen = []
    spec = GuideSpec(prompt="What is oak?", sampler=SMALL, stop=["never said", word])
    stopped: Any = run(spec, Inputs(), engine, seen.append)
    cut = stopped.answer
    assert cut.text == whole.text[: whole.text.index(word)].rstrip()
    assert (cut.finish_reason, cut.tokens < whole.tokens) == ("stop", True)
    assert cut.ids[: cut.tokens] == whole.ids[: cut.tokens]
    assert set(cut.ids[cut.tokens :]) == {engine.prior.eos_id}
    assert cut.reward != whole.reward
    assert all(cut.text.startswith(progress.rows[0].settled) for progress in seen)


def test_what_may_begin_a_stop_string_is_held_back(engine):
    prior = engine.prior
    ids = [*prior.tokenizer.encode("a tall tree").ids, prior.mask_id]
    assert settled_text(prior, ids, ()) == "a tall tree"
    assert settled_text(prior, ids, ("tree house",)) == "a tall"
    assert settled_text(prior, ids, ("tall",)) == "a"
    assert settled_text(prior, [*ids[:-1], prior.eos_id], ("tree house",)) == "a tall tree"


def test_a_chat_is_answered(engine):
    chat = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "What is oak?"},
    ]
    one: Any = run(GuideSpec(prompt=chat, sampler=SMALL), Inputs(), engine)
    text = "System: Answer in one word.\n\nUser: What is oak?"
    other: Any = run(GuideSpec(prompt=text, sampler=SMALL), Inputs(), engine)
    assert one.answer == other.answer
    assert GuideSpec.model_validate_json(one.spec.model_dump_json()) == one.spec
    for wrong in ([], [{"role": "user", "content": ""}], [{"role": "tool", "content": "x"}]):
        with pytest.raises(ValidationError):
            GuideSpec(prompt=wrong)
    with pytest.raises(InvalidSpec, match="reads at most 77"):
        GuideSpec(prompt=[{"role": "user", "content": "why is the oak tall? " * 60}]).check(
            None, None, False
        )


def test_relaxations_give_other_answers_from_the_same_draws(engine):
    answers = {}
    for name in ("expectation", "aps", "entrgi"):
        sampler = {**SMALL, "relaxation": {"type": name}, "learning_rate": 3.0}
        spec = GuideSpec(prompt="What is oak?", sampler=sampler, num_samples=2)
        result: Any = run(spec, Inputs(), engine)
        answers[name] = [answer.text for answer in result.answers]
        again: Any = run(spec, Inputs(), engine)
        assert again.answers == result.answers
        assert result.sidecar()["spec"]["sampler"]["relaxation"]["type"] == name
    assert answers["expectation"] != answers["aps"] != answers["entrgi"]
