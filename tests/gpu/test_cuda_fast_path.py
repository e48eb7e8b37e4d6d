"""The fast path on CUDA with random weights: graphs, compiled kernels, memory, determinism."""

import gc
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from aps_core.aps import sample_aps
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.runtime.process import be_reproducible
from aps_core.samplers.aps import APSConfig
from aps_core.sampling.cuda_graph import captured
from aps_core.text.aps import TextReward, sample_text_aps
from aps_core.text.chat import chat_of
from aps_core.text.config import TextConfig
from aps_core.tokenizers.execution import ExecutionPlan
from benchmarks.guided_text import REWARD
from benchmarks.inner_loop import Case
from benchmarks.models import guided_text, prior, tokenizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

CUDA = torch.device("cuda")
EAGER = ExecutionPlan(channels_last=True)
PLANS = pytest.mark.parametrize("compile", ["none", "norms", "decoder"])


@pytest.fixture(autouse=True)
def _deterministic():
    be_reproducible()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def make_step(case, plan, dtype=torch.bfloat16, parts=None, objective=None):
    parts = parts or tokenizer(case.network, CUDA, dtype, plan)
    step = case.step(parts, fixed=True, objective=objective)
    case.begin(step)
    return step


@PLANS
def test_graph_replay_equals_eager(compile):
    case = Case("published", 256, 256, CUDA)
    step = make_step(case, replace(EAGER, compile=compile))

    def outcome(advance):
        case.begin(step)
        losses = torch.zeros(20, device=CUDA)
        for i in range(20):
            advance()
            losses[i] = step.loss
        return losses, step.phi_NK.clone(), step.x_hat_BCHW.clone()

    eager = outcome(step)
    replay = captured(
        step
    )  # replay writes to the tensors of the capture, so no eager step may follow
    assert replay is not step
    for ours, theirs in zip(outcome(replay), eager, strict=True):
        assert torch.equal(ours, theirs)


@PLANS
def test_plans_agree_with_float32(compile):
    case = Case("published", 256, 256, CUDA)
    e, probe = (
        torch.randn(1, case.tokens, case.bits, device=CUDA),
        torch.randn(1, 3, 256, 256, device=CUDA),
    )

    def gradient(parts):
        x = e.clone().requires_grad_()
        return torch.autograd.grad((parts.decode(x, case.grid) * probe).sum(), x)[0]

    exact = gradient(tokenizer("published", CUDA, torch.float32, ExecutionPlan(lean=False)))
    fast = gradient(tokenizer("published", CUDA, torch.bfloat16, replace(EAGER, compile=compile)))
    assert F.cosine_similarity(exact.flatten(), fast.flatten(), dim=0) > 0.99
    assert F.cosine_similarity(exact, fast, dim=-1).min() > 0.9


def test_peak_memory_of_an_inner_iteration_at_512():
    case = Case("published", 512, 512, CUDA)
    before = torch.cuda.memory_allocated()
    advance = captured(make_step(case, None))
    advance()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 2.5 * 2**30


def test_recompute_needs_less_memory():
    case, peaks = Case("published", 512, 512, CUDA), []
    for plan in (EAGER, replace(EAGER, recompute=True)):
        step = make_step(case, plan)
        step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 0.75 * peaks[0]


def test_a_seed_repeats_a_job():
    case = Case("embedded", 128, 128, CUDA)
    model = prior("embedded", case.grid, True, tokenizer("embedded", CUDA, torch.bfloat16), CUDA)
    config = APSConfig(steps=3, inner_steps=6, temperature=1.0)
    runs = [
        sample_aps(
            model,
            case.objective,
            config,
            grid=case.grid,
            generator=torch.Generator(CUDA).manual_seed(0),
            batch=2,
            graph=graph,
        )
        for graph in (True, True, False)
    ]
    assert torch.equal(runs[0].z_BL, runs[1].z_BL)
    assert torch.equal(runs[0].x_BCHW, runs[1].x_BCHW)
    assert (
        runs[0].z_BL == runs[2].z_BL
    ).float().mean() > 0.9  # different kernels for the same computation


SPECS = [
    {"type": "super_resolution", "factor": 4},
    {"type": "gaussian_blur"},
    {"type": "motion_blur"},
    {"type": "hdr"},
    {"type": "jpeg"},
    {"type": "denoise"},
]
SPECS += [{"type": "inpainting", "mask": "random", "fraction": 0.7}]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["type"])
def test_operators_can_be_captured(spec, caplog):
    case = Case("embedded", 128, 128, CUDA)
    operator = OperatorSpec.named(spec["type"]).model_validate(spec).bind((3, 128, 128), CUDA)
    y = operator(torch.zeros(1, 3, 128, 128, device=CUDA))[0]
    step = make_step(case, EAGER, objective=MeasurementObjective(operator, y, 0.05))
    replay = captured(step)
    assert replay is not step, caplog.text
    before = step.phi_NK.clone()
    replay()
    assert not torch.equal(step.phi_NK, before)


@pytest.mark.parametrize("reuse", ["none", "prefix", "dual"])
def test_a_guided_answer_is_the_same_with_and_without_a_graph(caplog, reuse):
    lm, model = guided_text("embedded", CUDA)
    prompt = "word word word"
    prompt_BP = torch.tensor([lm.encode(prompt)], device=CUDA)
    reward = TextReward(model, REWARD, chat_of(prompt))
    config = TextConfig(
        steps=8,
        max_new_tokens=8,
        inner_steps=3,
        temperature=1.0,
        block_length=None if reuse == "none" else 4,
        reuse=reuse,
    )
    curves: dict[bool, list[list[float]]] = {True: [], False: []}

    def answer(graph):
        generator = torch.Generator(CUDA).manual_seed(0)

        def follow(info):
            curves[graph].extend(info.rewards_MB)

        return sample_text_aps(
            lm, prompt_BP, config, generator=generator, reward=reward, graph=graph, on_step=follow
        )

    assert torch.equal(answer(True), answer(False))
    assert curves[True] == curves[False]
    assert "cannot be captured" not in caplog.text
