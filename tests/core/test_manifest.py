"""The manifest compared with what the library loads, and the state of installed checkpoints."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aps_core.capabilities import describe
from aps_core.checkpoints import checkpoint_cache, manifest
from aps_core.engines.engine import ImageEngine
from aps_core.errors import InsufficientMemory, InvalidSpec, WeightsInvalid, WeightsMissing
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound, OperatorSpec
from aps_core.priors import PriorSpec
from aps_core.runtime import memory
from aps_core.runtime.memory import Transformer, image_token_bytes, magvit_decoder
from aps_core.tasks.estimate import Capacity, fit
from aps_core.tokenizers.execution import ExecutionPlan
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import Magvit2, MagvitConfig
from benchmarks.models import Term, features
from benchmarks.models import tokenizer as benchmark_tokenizer
from benchmarks.work import META, LiveBytes


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    return tmp_path


def put(folder: Path, **shapes: int):
    folder.mkdir(parents=True)
    save_file(
        {key: torch.zeros(size) for key, size in shapes.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text("{}")


def test_priors_and_operators_name_checkpoints_that_know_them():
    for kind, family in (("prior", PriorSpec.family), ("operator", OperatorSpec.family)):
        for name, cls in family.items():
            weights = getattr(cls, "weights", ())
            for checkpoint in weights if isinstance(weights, tuple) else ():
                assert f"{kind} {name}" in manifest.named(checkpoint).needed_by


def test_every_checkpoint_can_be_obtained():
    for name, entry in manifest.CHECKPOINTS.items():
        assert name == entry.name
        assert entry.repo or entry.convert, f"{name} says neither where it is nor how to make it"
        assert entry.licence
        assert entry.bytes > 0
        assert all(len(sha) == 64 for sha in entry.sha256.values())


def test_states(root):
    assert checkpoint_cache.check("magvitv2").state == "missing"
    with pytest.raises(
        WeightsMissing,
        match=(
            r"'magvitv2' are missing.*Run: aps weights fetch magvitv2\. Target: .*magvitv2, below"
            r" APS_WEIGHTS_DIR"
        ),
    ):
        checkpoint_cache.path("magvitv2")
    put(root / "magvitv2", a=100)
    assert checkpoint_cache.check("magvitv2").state == "present"
    assert checkpoint_cache.path("magvitv2") == root / "magvitv2"
    (root / "magvitv2" / "config.json").unlink()
    assert checkpoint_cache.check("magvitv2") == checkpoint_cache.Check(
        "magvitv2",
        root / "magvitv2",
        "incomplete",
        (f"{root / 'magvitv2' / 'config.json'} does not exist.",),
    )
    os.truncate(root / "magvitv2" / "model.safetensors", 300)
    with pytest.raises(WeightsInvalid, match="has 300 bytes, but its header implies"):
        checkpoint_cache.path("magvitv2")
    (root / "magvitv2" / "model.safetensors").write_bytes(b"\x80\x04 a pickle or anything else")
    assert checkpoint_cache.check("magvitv2").state == "damaged"
    with pytest.raises(InvalidSpec, match="There is no checkpoint 'magvit'"):
        checkpoint_cache.check("magvit")


def test_an_own_folder_is_completed_not_fetched(root):
    put(root / "my-reward", a=10)
    with pytest.raises(WeightsMissing, match=r"tokenizer\.json does not exist\. Put") as refused:
        checkpoint_cache.path("my-reward")
    assert "fetch" not in str(refused.value)
    (root / "my-reward" / "tokenizer.json").write_text("{}")
    assert checkpoint_cache.present() == ("my-reward",)


def test_what_cannot_be_read_is_a_state(root, monkeypatch):
    put(root / "qwen3-0.6b", a=10)
    put(root / "faulty", a=10)
    for folder in root.iterdir():
        (folder / "tokenizer.json").write_text("{}")
    # a regular file of which no byte can be read, even by root
    (root / "faulty" / "model.safetensors").unlink()
    (root / "faulty" / "model.safetensors").symlink_to("/proc/self/mem")
    found = checkpoint_cache.check("faulty")
    assert found.state == "incomplete"
    assert f"{root / 'faulty'} cannot be read: [Errno 5]" in found.reasons[0]
    assert checkpoint_cache.present() == ("qwen3-0.6b",)
    with pytest.raises(WeightsMissing, match="cannot be read"):
        checkpoint_cache.path("faulty")
    monkeypatch.setenv("APS_WEIGHTS_DIR", "/" + "x" * 300)  # no system has such a name
    assert checkpoint_cache.present() == ()
    assert checkpoint_cache.check("qwen3-0.6b").state != "present"


def test_folders_that_hold_no_checkpoint_are_not_looked_at(root):
    for name in (".cache", "lost+found", "mine"):
        put(root / name, a=10)
        (root / name / "tokenizer.json").write_text("{}")
    assert checkpoint_cache.present() == ("mine",)


def test_a_folder_that_vanishes_while_others_are_checked_is_not_present(root, monkeypatch):
    put(root / "mine", a=10)
    check = checkpoint_cache.check

    def removing(name: str) -> checkpoint_cache.Check:
        shutil.rmtree(root / "mine", ignore_errors=True)
        return check(name)

    monkeypatch.setattr(checkpoint_cache, "check", removing)
    assert checkpoint_cache.present() == ()


def test_published_hashes_are_compared_when_asked(root):
    put(root / "qwen3-0.6b", a=10)
    (root / "qwen3-0.6b" / "tokenizer.json").write_text("{}")
    assert checkpoint_cache.check("qwen3-0.6b").state == "present"
    found = checkpoint_cache.check("qwen3-0.6b", hashes=True)
    assert found.state == "damaged"
    assert "model.safetensors has another SHA-256 than published" in found.reasons[0]


def test_the_default_weights_folder_is_in_the_user_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("APS_WEIGHTS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert checkpoint_cache.root() == tmp_path / "aps" / "weights"


def test_identity_follows_the_weights(root):
    for name in ("mmada-8b-base", "magvitv2"):
        put(root / name, a=10)
    (root / "mmada-8b-base" / "tokenizer.json").write_text("{}")
    prior = PriorSpec.named("mmada_8b")(type="mmada_8b")
    before = prior.identity()
    assert prior.identity() == before
    save_file({"a": torch.ones(10)}, root / "magvitv2" / "model.safetensors")
    assert prior.identity() != before


def saved_numbers(tokenizer, grid):
    """Values per pixel that autograd saves for the decoder's backward pass."""
    e_BLD = torch.zeros(
        1,
        grid[0] * grid[1],
        tokenizer.net.config.codebook_dim,
        device=tokenizer.codebook_KD.device,
        requires_grad=True,
    )
    weights = {p.untyped_storage()._cdata for p in tokenizer.net.parameters()}
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.setdefault(t.untyped_storage()._cdata, t), lambda t: t
    ):
        tokenizer.decode(e_BLD, grid)
    return sum(t.numel() for storage, t in kept.items() if storage not in weights) / (
        grid[0] * grid[1] * tokenizer.stride**2
    )


def test_saved_activations_match_the_estimate(tmp_path):
    (tmp_path / "config.json").write_text("{}")  # as published: does not contain the shape
    with torch.device("meta"):
        published = MagvitTokenizer(Magvit2(MagvitConfig()), ExecutionPlan(channels_last=True))
    assert magvit_decoder(tmp_path).saved == pytest.approx(
        saved_numbers(published, (32, 32)), rel=0.02
    )
    embedded = ImageEngine.load("embedded").prior.tokenizer
    assert magvit_decoder(
        PriorSpec.named("embedded")(type="embedded").folders()[1]
    ).saved == pytest.approx(saved_numbers(embedded, (8, 8)), rel=0.06)  # and attention weights


def test_the_memory_of_the_perceptual_term_matches_the_estimate(tmp_path):
    """Peak memory of the term's tensors at 512x512, counted without computation."""
    (tmp_path / "config.json").write_text("{}")
    parts = benchmark_tokenizer(
        "published", META, torch.bfloat16, ExecutionPlan(channels_last=True)
    )
    estimates: list[tuple[Term, Any]] = [
        ("vgg16", memory.VGG16_BYTES),
        ("tokenizer", memory.magvit_encoder_bytes(tmp_path, 2)),
    ]
    for term, estimate in estimates:
        seen = features(term, parts, META, torch.bfloat16)
        with LiveBytes() as live:
            y, x = torch.zeros(3, 512, 512, device=META), torch.zeros(1, 3, 512, 512, device=META)
            objective = MeasurementObjective(
                Bound(lambda x: x), y, 0.0, perceptual=seen, perceptual_weight=1
            )
            live.peak = live.now
            objective(x.requires_grad_())[0].sum().backward()
        assert live.peak / 512**2 == pytest.approx(estimate, rel=0.03), term


def test_the_estimate_includes_the_perceptual_term_in_use(root):
    """Without VGG16, the perceptual term uses the tokenizer's encoder, which needs more memory."""
    prior = PriorSpec.named("mmada_8b")(type="mmada_8b")
    shape = {"d_model": 8, "n_layers": 1, "n_heads": 1, "mlp_hidden_size": 8, "embedding_size": 9}
    for name, config in (
        ("mmada-8b-base", shape),
        ("magvitv2", {}),
    ):
        put(root / name, a=10)
        (root / name / "config.json").write_text(json.dumps(config))
    (root / "mmada-8b-base" / "tokenizer.json").write_text("{}")
    assert "aps weights fetch vgg16" in described("mmada_8b")["lacking"]
    without = prior.token_bytes("cuda")
    put(root / "vgg16", a=10)
    assert described("mmada_8b")["lacking"] is None
    expected = memory.magvit_encoder_bytes(root / "magvitv2", 2) - memory.VGG16_BYTES
    assert without - prior.token_bytes("cuda") == pytest.approx(256 * expected, abs=1)
    assert expected > 0


def described(name):
    return next(prior for prior in describe()["priors"] if prior["name"] == name)


def test_a_large_job_on_the_published_prior_fits_its_target(tmp_path):
    """With 14.3 GiB of weights and the default perceptual term, 512x512 needs at most 18.5 GiB and
    1024x1024 at most 23 GiB.
    """
    (tmp_path / "config.json").write_text("{}")
    token = image_token_bytes(
        magvit_decoder(tmp_path),
        8192,
        16,
        Transformer(width=4096, layers=32, inner=12288, words=134656, heads=32).forward_bytes(2),
        2,
    )
    token += 256 * memory.VGG16_BYTES
    assert 1.5 < token * 1024 / 2**30 < 18.5 - 14.3
    assert 6 < token * 4096 / 2**30 < 23 - 14.3


def test_priors_exceeding_memory_are_rejected_with_their_sizes():
    specs = [PriorSpec.named(name)(type=name) for name in ("embedded", "embedded_text")]
    together = fit(specs, "cpu", 4_000_000_000)
    alone = fit(specs[:1], "cpu", 4_000_000_000)
    assert together["embedded"].job_bytes == alone["embedded"].job_bytes - specs[1].weights_bytes(
        "cpu"
    )
    with pytest.raises(
        InsufficientMemory,
        match=r"embedded .* a job, embedded_text .* a job.*but the device has 0\.6 GB",
    ):
        fit(specs, "cpu", 600_000_000)


def test_a_job_exceeding_memory_is_rejected():
    Capacity(job_bytes=1000, token_bytes=10).check(100)
    with pytest.raises(InsufficientMemory, match="at most 100 tokens"):
        Capacity(job_bytes=1000, token_bytes=10).check(101)
