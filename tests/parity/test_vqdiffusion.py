"""VQ-Diffusion loaded from diffusers' layout: networks, schedule, guidance, anchored sampling."""

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel

from aps_core.aps import sample_aps
from aps_core.errors import InvalidSpec, WeightsInvalid, WeightsMissing
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.priors import PriorSpec
from aps_core.priors.vq_diffusion.network import load_vq_diffusion
from aps_core.samplers.aps import APSConfig
from aps_core.types import MASK

TOLERANCE = 2e-5
CPU = torch.device("cpu")


def write(folder, config, tensors, name="diffusion_pytorch_model.safetensors"):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / name)


def make_checkpoint(root, fixture):
    """Writes the fixture's networks in the release's layout with a tiny random text encoder."""
    config = fixture.config()
    length, width = fixture.arrays()["cond"].shape[1:]
    for part in ("transformer", "vqvae"):
        write(root / part, config[part], load_file(fixture.folder / f"{part}.safetensors"))
    torch.manual_seed(0)
    letters = [*"!abcdefghijklmnopqrstuvwxyz"]
    vocabulary = [
        *letters,
        *(letter + "</w>" for letter in letters),
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    fields = {
        "vocab_size": len(vocabulary),
        "hidden_size": width,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    text = CLIPTextConfig(
        **fields,
        max_position_embeddings=length,
        bos_token_id=len(vocabulary) - 2,
        eos_token_id=len(vocabulary) - 1,
    )
    published = {
        f"text_model.{k.removeprefix('text_model.')}": v
        for k, v in CLIPTextModel(text).state_dict().items()
    }
    # as stored by old releases
    published["text_model.embeddings.position_ids"] = torch.arange(length)[None]
    write(root / "text_encoder", text.to_dict(), published, "model.safetensors")
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "vocab.json").write_text(
        json.dumps({token: i for i, token in enumerate(vocabulary)})
    )
    (root / "tokenizer" / "merges.txt").write_text("#version: 0.2\n")
    learned = {"learnable": True, "hidden_size": width, "length": length}
    write(
        root / "learned_classifier_free_sampling_embeddings",
        learned,
        {"embeddings": torch.randn(length, width)},
    )
    return root


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("vqdiffusion")


@pytest.fixture(scope="module")
def folder(fixture, tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("vq_diffusion"), fixture)


@pytest.fixture(scope="module")
def prior(folder):
    return load_vq_diffusion(folder, CPU, torch.float32)


@pytest.fixture(scope="module")
def expected(fixture):
    return fixture.arrays()


def masked(z, prior):
    """The fixture's tokens with the network's mask id replaced by the library's."""
    return torch.where(z == prior.mask_class, MASK, z)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


# -- the original's numbers ---------------------------------------------------------------------


def test_log_probabilities(prior, expected):
    for name in (name for name in expected if name.startswith("logp_t")):
        step = int(name.removeprefix("logp_t"))
        for row in range(len(expected["z"])):
            z, text = expected["z"][row : row + 1], expected["cond"][row]
            close(
                prior._log_p(masked(z, prior), step, text).transpose(1, 2),
                expected[name][row : row + 1],
            )


def test_reverse_transition(prior, expected):
    for name in (name for name in expected if name.startswith("q_posterior_t")):
        step = int(name.removeprefix("q_posterior_t"))
        posterior = prior.scheduler.q_posterior(expected[f"logp_t{step}"], expected["z"], step)
        torch.testing.assert_close(posterior, expected[name], atol=TOLERANCE, rtol=1e-5)


def test_tokenizer(prior, expected, fixture):
    tokenizer = prior.tokenizer
    grid = tuple(expected["emb"].shape[-2:])
    rows = tokenizer.codebook_KD[expected["codes"]]
    close(rows.transpose(1, 2).reshape(expected["emb"].shape), expected["emb"])
    close(tokenizer.decode(rows, grid), expected["decode"])
    close(tokenizer.features(expected["pixels"]), expected["latents"])
    assert torch.equal(tokenizer.encode(expected["pixels"]), expected["enc_codes"])
    close(
        tokenizer.decode(expected["soft_probs"] @ tokenizer.codebook_KD, grid),
        expected["soft_decode"],
    )
    assert tokenizer.stride * grid[0] == expected["pixels"].shape[-2]
    codes, quantised = tokenizer.quantize(rows)
    assert torch.equal(codes, expected["codes"])
    assert torch.equal(quantised, rows)


def test_schedule(fixture):
    """Tables for the published number of classes; uniform noise is negligible, as anchored sampling
    assumes.
    """
    from diffusers import VQDiffusionScheduler

    (path,) = fixture.folder.glob("schedule_*_T*.npz")
    classes, steps = (int(part.lstrip("T")) for part in path.stem.split("_")[1:])
    scheduler = VQDiffusionScheduler(num_vec_classes=classes, num_train_timesteps=steps)
    with np.load(path) as tables:
        for name in tables.files:
            np.testing.assert_allclose(getattr(scheduler, name).numpy(), tables[name], rtol=1e-5)
        uniform = (classes - 1) * np.exp(tables["log_cumprod_bt"][:-1].astype(np.float64))
    assert uniform.max() < 1.1e-6


def test_real_shapes(fixture):
    """With the published configuration, the networks have the published keys and shapes."""
    from diffusers import Transformer2DModel, VQModel

    real = fixture.config("real_state_dict_shapes.json")
    classes, width = real["transformer"]["latent_image_embedding.emb.weight"]
    steps = real["transformer"]["transformer_blocks.0.norm1.emb.weight"][0]
    channels = tuple(
        real["vqvae"][f"encoder.down_blocks.{i}.resnets.0.conv1.weight"][0] for i in range(4)
    )
    codes, dims = real["vqvae"]["quantize.embedding.weight"]
    with torch.device("meta"):
        transformer = Transformer2DModel(
            num_attention_heads=16,
            attention_head_dim=width // 16,
            num_layers=36,
            cross_attention_dim=real["transformer"]["transformer_blocks.0.attn2.to_k.weight"][1],
            sample_size=real["transformer"]["latent_image_embedding.height_emb.weight"][0],
            num_vector_embeds=classes,
            num_embeds_ada_norm=steps,
            activation_fn="geglu-approximate",
            attention_bias=True,
            norm_type="ada_norm",
        )
        vqvae = VQModel(
            down_block_types=("DownEncoderBlock2D",) * 3 + ("AttnDownEncoderBlock2D",),
            up_block_types=("AttnUpDecoderBlock2D",) + ("UpDecoderBlock2D",) * 3,
            block_out_channels=channels,
            layers_per_block=2,
            latent_channels=real["vqvae"]["quant_conv.weight"][1],
            num_vq_embeddings=codes,
            vq_embed_dim=dims,
        )
    shapes = {key: list(value.shape) for key, value in transformer.state_dict().items()}
    assert {
        k: v
        for k, v in shapes.items()
        if ".blocks." in k
        or not k.startswith("transformer_blocks.")
        or k.startswith("transformer_blocks.0.")
    } == real["transformer"]
    assert {key: list(value.shape) for key, value in vqvae.state_dict().items()} == real["vqvae"]
    assert classes == codes + 1 == 4097
    assert sum(p.numel() for p in transformer.parameters()) == pytest.approx(1.359e9, rel=1e-3)


# -- guidance, time and text --------------------------------------------------------------------


def logits(prior, z, fraction=0.5, condition="", scale=0.0, grid=None):
    return prior.logits(
        masked(z, prior),
        grid=grid or prior.native_grid,
        mask_fraction=fraction,
        condition=condition,
        guidance_scale=scale,
    )


def test_guidance_equals_the_releases_at_scale_plus_one(prior, expected):
    z = expected["z"]
    unconditional, text = logits(prior, z), logits(prior, z, condition="a cat")
    assert (unconditional - text).abs().max() > 1e-3
    assert torch.equal(logits(prior, z, condition="a cat", scale=0.0), text)
    scale = 5.0
    released = unconditional + scale * (text - unconditional)
    released = (released - released.logsumexp(-1, keepdim=True)).clamp(-70)
    close(logits(prior, z, condition="a cat", scale=scale - 1), released)
    assert torch.equal(logits(prior, z, scale=3.0), unconditional)  # nothing to guide towards


def test_time_follows_the_masked_share(prior):
    steps = len(prior.gamma_bar_T)
    assert [prior.timestep(f) for f in (1.0, 0.0)] == [steps - 1, 0]
    for fraction in (0.1, 0.5, 0.9):
        assert prior.gamma_bar_T[prior.timestep(fraction)].item() == pytest.approx(
            fraction, abs=0.6 / steps
        )


def test_text_vectors(prior):
    short, long = prior.text("abc"), prior.text("abcdefghijkl")
    assert short.shape == long.shape == prior.unconditional_SE.shape
    torch.testing.assert_close(short.norm(dim=-1), torch.ones(len(short)))
    start, first, end, *pads = prior.text.encoder.get_input_embeddings().weight[
        [prior.text.tokenizer.bos_token_id, 1, prior.text.tokenizer.eos_token_id, 0]
    ]
    seen = []
    handle = prior.text.encoder.get_input_embeddings().register_forward_hook(
        lambda _, __, out: seen.append(out[0])
    )
    prior.text("a")
    prior.text("abcdefghijkl")
    handle.remove()
    a_word = prior.text.encoder.get_input_embeddings().weight[1 + 27]
    assert torch.equal(seen[0][:3], torch.stack([start, a_word, end]))
    assert torch.equal(seen[0][3:], pads[0].expand(len(short) - 3, -1))  # padded with token 0
    assert torch.equal(seen[1][:2], torch.stack([start, first]))
    assert not torch.equal(seen[1][-1], end)  # cut without an end token


# -- sampling -----------------------------------------------------------------------------------


def test_anchored_sampling_runs_on_it(prior, expected):
    """APS reduces the misfit with the nearest-code straight-through estimator, on any grid."""
    for grid in (prior.native_grid, (prior.native_grid[0] + 2, prior.native_grid[1] + 1)):
        truth = torch.randint(
            prior.mask_class, (1, grid[0] * grid[1]), generator=torch.Generator().manual_seed(1)
        )
        y = prior.tokenizer.decode(prior.tokenizer.codebook_KD[truth], grid)[0]
        objective = MeasurementObjective(Bound(lambda x: x), y, 0.0)
        misfits = {}
        for inner in (0, 25):
            config = APSConfig(steps=4, inner_steps=inner, learning_rate=0.3, guidance_scale=1)
            sample = sample_aps(
                prior,
                objective,
                config,
                grid=grid,
                generator=torch.Generator().manual_seed(0),
                batch=2,
                condition="a cat",
            )
            assert sample.z_BL.min() >= 0
            assert sample.z_BL.max() < prior.mask_class
            assert sample.x_BCHW.shape == (
                2,
                3,
                grid[0] * prior.tokenizer.stride,
                grid[1] * prior.tokenizer.stride,
            )
            misfits[inner] = sample.misfit_B.mean().item()
        assert misfits[25] < 0.9 * misfits[0]


# -- files --------------------------------------------------------------------------------------


def test_spec_finds_the_folder(folder, tmp_path, monkeypatch):
    spec: Any = PriorSpec.named("vq_diffusion")(type="vq_diffusion")
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    with pytest.raises(
        WeightsMissing,
        match=r"vq-diffusion-ithq does not exist.*aps weights fetch vq-diffusion-ithq",
    ):
        spec.load(CPU)
    assert "aps weights fetch vq-diffusion-ithq" in spec.missing()
    shutil.copytree(folder, tmp_path / "vq-diffusion-ithq")
    assert spec.missing() is None
    assert spec.load(CPU).mask_class == len(spec.load(CPU).tokenizer.codebook_KD)
    before = spec.identity()
    path = tmp_path / "vq-diffusion-ithq" / "vqvae" / "diffusion_pytorch_model.safetensors"
    save_file({k: v + 1 for k, v in load_file(path).items()}, path)
    assert spec.identity() != before


def test_attention_names_of_old_releases(folder, tmp_path, prior, expected):
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    path = old / "vqvae" / "diffusion_pytorch_model.safetensors"
    renamed = {}
    for key, value in load_file(path).items():
        for new, name in (
            (".to_q.", ".query."),
            (".to_k.", ".key."),
            (".to_v.", ".value."),
            (".to_out.0.", ".proj_attn."),
        ):
            key = key.replace(new, name)
        renamed[key] = value
    assert any(".proj_attn." in key for key in renamed)
    save_file(renamed, path)
    assert torch.equal(
        load_vq_diffusion(old, CPU, torch.float32).tokenizer.features(expected["pixels"]),
        prior.tokenizer.features(expected["pixels"]),
    )


@pytest.mark.parametrize(
    ("file", "damage", "error", "words"),
    [
        (
            "transformer/diffusion_pytorch_model.safetensors",
            "remove",
            WeightsMissing,
            "does not exist",
        ),
        (
            "transformer/diffusion_pytorch_model.safetensors",
            "pickle",
            WeightsInvalid,
            r"\.bin is a pickle",
        ),
        (
            "vqvae/diffusion_pytorch_model.safetensors",
            "truncate",
            WeightsInvalid,
            "not a readable safetensors",
        ),
        ("vqvae/config.json", "no such block", WeightsInvalid, "does not describe a VQModel"),
        ("tokenizer/merges.txt", "remove", WeightsMissing, "merges.txt does not exist"),
        (
            "learned_classifier_free_sampling_embeddings/diffusion_pytorch_model.safetensors",
            "remove",
            WeightsMissing,
            "does not exist",
        ),
    ],
)
def test_damaged_checkpoints(folder, tmp_path, file, damage, error, words):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    path = broken / file
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "no such block":
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "down_block_types": ["NoSuchBlock"]})
        )
    else:
        path.unlink()
        if damage == "pickle":
            torch.save({"a": torch.zeros(1)}, path.with_suffix(".bin"))
    with pytest.raises(error, match=words):
        load_vq_diffusion(broken, CPU, torch.float32)


def test_incompatible_parts_are_rejected(folder, tmp_path, fixture):
    mixed = tmp_path / "mixed"
    shutil.copytree(folder, mixed)
    config = fixture.config()["vqvae"]
    shutil.rmtree(mixed / "vqvae")
    tensors = load_file(fixture.folder / "vqvae.safetensors")
    tensors["quantize.embedding.weight"] = tensors["quantize.embedding.weight"][:-1].clone()
    write(
        mixed / "vqvae", {**config, "num_vq_embeddings": config["num_vq_embeddings"] - 1}, tensors
    )
    with pytest.raises(WeightsInvalid, match="classes"):
        load_vq_diffusion(mixed, CPU, torch.float32)


def test_prompt_tokens_are_counted_by_the_text_encoder(folder, prior, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "vq-diffusion-ithq")
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    spec: Any = PriorSpec.named("vq_diffusion")(type="vq_diffusion")
    longest = prior.text.length - 2
    for text in ("a", "ab cd's", "x, 12 YZ"):
        words = (text + " ") * 40
        tokens = len(prior.text.tokenizer(words).input_ids) - 2
        assert tokens > longest
        with pytest.raises(
            InvalidSpec, match=rf"The prompt has {tokens} tokens, the prior reads at most {longest}"
        ):
            spec.check_prompt(words)
    spec.check_prompt("a")
