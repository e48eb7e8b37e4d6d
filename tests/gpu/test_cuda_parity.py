"""The outputs of the original implementations (tests/fixtures), computed on a CUDA device."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

from aps_core.priors.dream.network import load_dream
from aps_core.priors.llada.network import load_llada
from aps_core.text.config import TextConfig
from aps_core.text.filtering import filtered
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.magvit2 import load_magvit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

FIXTURES = Path(__file__).parents[1] / "fixtures"
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _exact():
    """Float32 throughout: TF32, the default of convolutions, would hide an error of the size that
    is looked for.
    """
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def arrays(name):
    with np.load(FIXTURES / name / "expected.npz") as stored:
        return {key: torch.from_numpy(stored[key]).to(CUDA) for key in stored.files}


def language_model(name, folder, load):
    config = json.loads((FIXTURES / name / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((FIXTURES / name / "model.safetensors").read_bytes())
    words = {str(i): i for i in range(60)}
    Tokenizer(models.WordLevel(words, unk_token="0")).save(str(folder / "tokenizer.json"))
    return load(folder, CUDA, torch.float32)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("lean", [False, True])
def test_magvit(lean, channels_last):
    expected = arrays("magvitv2")
    plan = ExecutionPlan(lean=lean, channels_last=channels_last)
    parts = load_magvit(FIXTURES / "magvitv2", CUDA, torch.float32, plan)
    pixels = expected["pixels"]
    torch.testing.assert_close(parts.features(pixels), expected["pre_quant"], atol=1e-3, rtol=0)
    assert (parts.encode(pixels) == expected["codes"]).float().mean() > 0.99
    grid = tuple(side // parts.stride for side in pixels.shape[-2:])
    e_BLD = parts.codebook_KD[expected["codes"]].requires_grad_()
    picture = parts.decode(e_BLD, grid)
    torch.testing.assert_close(picture, expected["recon"], atol=1e-3, rtol=0)
    (gradient,) = torch.autograd.grad(picture.square().sum(), e_BLD)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


def test_llada(tmp_path):
    prior, expected = language_model("mmada_lm", tmp_path, load_llada), arrays("mmada_lm")
    logits = prior.logits(expected["input_ids"])
    torch.testing.assert_close(logits, expected["logits_no_mask"], atol=2e-4, rtol=0)


def test_dream(tmp_path):
    prior, expected = language_model("dream_lm", tmp_path, load_dream), arrays("dream_lm")
    logits = prior.logits(expected["input_ids"])
    torch.testing.assert_close(logits, expected["logits_full_shifted"], atol=2e-4, rtol=0)


def test_the_same_tokens_pass_the_filter_as_on_a_cpu():
    logits = torch.randn(64, 20_011, generator=torch.Generator().manual_seed(0)) * 4
    for config in (TextConfig(), TextConfig(top_k=None), TextConfig(top_p=None, temperature=1.0)):
        kept = filtered(logits.to(CUDA), config).cpu() > torch.finfo(torch.float32).min
        same = kept == (filtered(logits, config) > torch.finfo(torch.float32).min)
        # a threshold may fall within the rounding of a probability
        assert same.all(-1).float().mean() > 0.95
