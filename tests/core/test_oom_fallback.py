"""Running out of memory: the run goes on from its last finished step, says so, and fails only when
nothing helps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from aps_core.engines.engine import Engine, ImageEngine
from aps_core.errors import InsufficientMemory
from aps_core.imaging import images
from aps_core.priors.convolutional.network import ConvolutionalNet
from aps_core.tasks import Inputs, PictureProgress, PictureResult, run, validate_spec
from aps_core.tokenizers.magvit2 import MagvitTokenizer
from aps_core.tokenizers.magvit2_net import Decoder
from aps_core.types import Grid
from tests.engines import image_engine

STEPS = 5


@pytest.fixture(scope="module")
def engine() -> Engine:
    return image_engine("embedded")


@pytest.fixture
def decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Decoder, torch.Tensor], bool]], None]:
    """Makes the decoder fail as CUDA's allocator would, whenever a condition on its input holds."""
    forward = Decoder.forward

    def install(too_much: Callable[[Decoder, torch.Tensor], bool]) -> None:
        def limited(self: Decoder, z_BDhw: torch.Tensor) -> torch.Tensor:
            if too_much(self, z_BDhw):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return forward(self, z_BDhw)

        monkeypatch.setattr(Decoder, "forward", limited)

    return install


def restored(
    engine: Engine, tmp_path: Path, num_samples: int = 1
) -> tuple[PictureResult, list[int]]:
    """A small restoration, and the steps its hook saw."""
    path = tmp_path / "small.png"
    Image.radial_gradient("L").resize((32, 32)).convert("RGB").save(path)
    sampler = {"steps": STEPS, "inner_steps": 3}
    fields = {
        "type": "restore",
        "operator": {"type": "denoise"},
        "sigma": 0.1,
        "seed": 3,
        "num_samples": num_samples,
        "sampler": sampler,
    }
    seen: list[int] = []

    def on_step(progress: PictureProgress) -> None:
        seen.append(progress.step)

    result = run(
        validate_spec(fields), Inputs(images.open_image(path.read_bytes())), engine, on_step
    )
    assert isinstance(result, PictureResult)
    return result, seen


def nth_call(n: int) -> Callable[[Decoder, torch.Tensor], bool]:
    calls = iter(range(1, 10_000))
    return lambda *_: next(calls) == n


def test_freeing_the_cache_does_not_change_the_result(
    engine: Engine, tmp_path: Path, decoder: Callable[..., None]
) -> None:
    undisturbed, _ = restored(engine, tmp_path)
    assert undisturbed.memory_fallbacks == []
    decoder(nth_call(8))  # three a step: the second of the third
    result, seen = restored(engine, tmp_path)
    assert result.memory_fallbacks == ["free_cache"]
    assert "after step 2" in result.notes[0]
    assert seen == [1, 2, 3, 4, 5], "no step is computed twice, but the one that failed"
    assert torch.equal(result.codes_BL, undisturbed.codes_BL)
    assert torch.equal(result.pictures_BCHW, undisturbed.pictures_BCHW)
    assert result.resumed_from_step is None


def test_samples_that_exceed_memory_are_computed_one_by_one(
    engine: Engine, tmp_path: Path, decoder: Callable[..., None]
) -> None:
    undisturbed, _ = restored(engine, tmp_path, num_samples=2)
    decoder(lambda _, z_BDhw: len(z_BDhw) > 1)
    result, seen = restored(engine, tmp_path, num_samples=2)
    assert result.memory_fallbacks == ["free_cache", "split_batch"]
    assert seen == [1, 2, 3, 4, 5]
    assert result.sidecar()["memory_fallbacks"] == result.memory_fallbacks
    # the same up to rounding, which may flip single tokens
    assert (result.codes_BL == undisturbed.codes_BL).float().mean() > 0.8
    assert result.pictures_BCHW.shape == undisturbed.pictures_BCHW.shape


def test_a_denoising_prior_sees_samples_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = image_engine("embedded_documents")
    upload = Inputs(images.Picture(Image.radial_gradient("L").resize((32, 32)).convert("RGB")))
    spec = validate_spec(
        {
            "type": "restore",
            "operator": {"type": "denoise"},
            "sigma": 0.1,
            "num_samples": 2,
            "prior": "embedded_documents",
        }
    )
    undisturbed = run(spec, upload, pages)
    forward = ConvolutionalNet.forward

    def limited(self: ConvolutionalNet, known_BLI: torch.Tensor, grid: Grid) -> torch.Tensor:
        if len(known_BLI) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(self, known_BLI, grid)

    monkeypatch.setattr(ConvolutionalNet, "forward", limited)
    result = run(spec, upload, pages)
    assert result.memory_fallbacks == ["free_cache", "split_batch"]
    assert isinstance(result, PictureResult)
    assert isinstance(undisturbed, PictureResult)
    torch.testing.assert_close(result.pictures_BCHW, undisturbed.pictures_BCHW, atol=0.01, rtol=0.0)


@pytest.mark.parametrize(
    ("num_samples", "before"), [(1, ["free_cache"]), (2, ["free_cache", "split_batch"])]
)
def test_a_large_picture_is_decoded_with_recomputation(
    engine: Engine,
    tmp_path: Path,
    decoder: Callable[..., None],
    num_samples: int,
    before: list[str],
) -> None:
    decoder(lambda self, z_BDhw: z_BDhw.requires_grad and not self.recompute)
    result, _ = restored(engine, tmp_path, num_samples)
    assert result.memory_fallbacks == [*before, "recompute"]
    assert torch.isfinite(result.pictures_BCHW).all()
    assert isinstance(engine, ImageEngine)
    assert isinstance(engine.prior.tokenizer, MagvitTokenizer)
    assert not engine.prior.tokenizer.net.decoder.recompute, "the next job starts at full speed"


def test_recomputing_gives_the_same_gradient_from_less_memory(engine: Engine) -> None:
    assert isinstance(engine, ImageEngine)
    tokenizer = engine.prior.tokenizer
    kept: list[int] = []

    def gradient(**within: bool) -> torch.Tensor:
        e_BLD = tokenizer.codebook_KD[torch.arange(16)[None] * 7].clone().requires_grad_()
        total = 0

        def pack(saved: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total += saved.nbytes
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            if within.get("recompute"):
                with tokenizer.recomputing():  # type: ignore[attr-defined]
                    x_BCHW = tokenizer.decode(e_BLD, (4, 4))
            else:
                x_BCHW = tokenizer.decode(e_BLD, (4, 4))
        kept.append(total)
        (grad,) = torch.autograd.grad(x_BCHW.square().sum(), e_BLD)
        return grad

    assert torch.allclose(gradient(), gradient(recompute=True), rtol=1e-2, atol=1e-3)
    assert kept[1] < kept[0]


def test_a_job_that_never_fits_fails_with_advice(
    engine: Engine, tmp_path: Path, decoder: Callable[..., None]
) -> None:
    decoder(lambda *_: True)
    with pytest.raises(InsufficientMemory, match="working_size"):
        restored(engine, tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_out_of_memory_errors_of_cuda_libraries_are_recognised(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    forward, failing = Decoder.forward, nth_call(2)

    def limited(self: Decoder, z_BDhw: torch.Tensor) -> torch.Tensor:
        if failing(self, z_BDhw):
            raise RuntimeError(words)
        return forward(self, z_BDhw)

    monkeypatch.setattr(Decoder, "forward", limited)
    assert restored(engine, tmp_path)[0].memory_fallbacks == ["free_cache"]


def test_running_out_of_memory_on_a_cpu_is_recognised(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, failing = Decoder.forward, nth_call(2)

    def limited(self: Decoder, z_BDhw: torch.Tensor) -> torch.Tensor:
        if failing(self, z_BDhw):
            torch.empty(2**50)  # more than any address space
        return forward(self, z_BDhw)

    monkeypatch.setattr(Decoder, "forward", limited)
    assert restored(engine, tmp_path)[0].memory_fallbacks == ["free_cache"]


def test_other_errors_are_not_treated_as_out_of_memory(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Decoder, z_BDhw: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Decoder, "forward", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        restored(engine, tmp_path)
