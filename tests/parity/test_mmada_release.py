"""Comparison of the MMaDA prior, its prompt layout and unguided sampler with the original."""

import json
import math
from typing import cast

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from aps_core.priors.mmada.network import Layout, load_mmada
from aps_core.samplers.prior import PriorConfig
from aps_core.sampling import driver
from aps_core.sampling.schedule import masked_counts
from aps_core.types import MASK
from aps_core.types import Tokenizer as PictureTokenizer


class IdentityTokenizer:
    """An image tokenizer whose codes are their own embeddings; the tests do not use its decoder."""

    stride = 1

    def __init__(self, codes: int) -> None:
        self.codebook_KD = torch.eye(codes)

    def decode(self, e_BLD, grid):
        return torch.zeros(len(e_BLD), 3, *grid)


def layout_of(settings: dict) -> dict:
    """Converts the fixture's token ids to this library's layout."""
    names = {
        "mask_token_id": "mask",
        "t2i_id": "t2i",
        "bos_id": "bos",
        "eos_id": "eos",
        "soi_id": "soi",
        "eoi_id": "eoi",
    }
    layout = {ours: settings[theirs] for theirs, ours in names.items() if theirs in settings}
    layout |= {
        name: settings[name]
        for name in ("image_offset", "codebook_size", "max_text_len")
        if name in settings
    }
    side = math.isqrt(settings.get("num_vq_tokens", 16))
    return {**layout, "native_grid": [side, side]}


def load(fixture, folder):
    """Writes the fixture as a checkpoint folder; captions are lists of ids written as words."""
    config = fixture.config()
    (folder / "config.json").write_text(
        json.dumps({**config, "layout": layout_of(config["fixture"])})
    )
    (folder / "model.safetensors").write_bytes((fixture.folder / "model.safetensors").read_bytes())
    text = Tokenizer(
        models.WordLevel(
            {str(i): i for i in range(config["fixture"]["image_offset"])}, unk_token="0"
        )
    )
    text.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text.save(str(folder / "tokenizer.json"))
    return load_mmada(
        folder,
        cast(PictureTokenizer, IdentityTokenizer(config["fixture"]["codebook_size"])),
        torch.device("cpu"),
        torch.float32,
    )


@pytest.fixture(scope="module")
def t2i(parity):
    return parity("mmada_t2i")


@pytest.fixture(scope="module")
def prior(t2i, tmp_path_factory):
    return load(t2i, tmp_path_factory.mktemp("mmada"))


@pytest.fixture(scope="module")
def fixture(parity):
    return parity("mmada_lm")


@pytest.fixture(scope="module")
def backbone(fixture, tmp_path_factory):
    return load(fixture, tmp_path_factory.mktemp("lm"))


class TestBackbone:
    def logits(self, backbone, ids):
        """Logits of all positions over the image codes, the part of the head the prior keeps."""
        with torch.no_grad():
            return (
                backbone.model.model(input_ids=ids, use_cache=False).last_hidden_state
                @ backbone.head_KD.T
            )

    def image_codes(self, backbone, logits):
        offset = backbone.layout.image_offset
        return logits[..., offset : offset + backbone.layout.codebook_size]

    def test_it_is_bidirectional_and_matches_the_original(self, fixture, backbone):
        expected = fixture.arrays()
        torch.testing.assert_close(
            self.logits(backbone, expected["input_ids"]),
            self.image_codes(backbone, expected["logits_no_mask"]),
            atol=2e-5,
            rtol=0,
        )
        causal = self.image_codes(
            backbone, expected["logits_attention_mask_only_row0_causal_quirk"]
        )
        assert not torch.allclose(
            self.logits(backbone, expected["input_ids"][:1])[0], causal, atol=1e-2
        )

    def test_omitting_the_padding_does_not_change_the_logits(self, fixture, backbone):
        expected = fixture.arrays()
        for ids, mask, logits in zip(
            expected["input_ids"],
            expected["attention_mask"],
            expected["logits_pair_bias"],
            strict=True,
        ):
            valid = mask.bool()
            torch.testing.assert_close(
                self.logits(backbone, ids[valid][None])[0],
                self.image_codes(backbone, logits[valid]),
                atol=2e-5,
                rtol=0,
            )


def image_slots(prior, ids):
    """Token state of a published sequence: the positions between soi and eoi."""
    height, width = prior.layout.native_grid
    image = ids[..., -(height * width + 1) : -1]
    return torch.where(image == prior.layout.mask, MASK, image - prior.layout.image_offset)


def caption_of(prior, ids):
    """The words between bos and eos of a published sequence."""
    row = ids.tolist()
    return " ".join(map(str, row[row.index(prior.layout.bos) + 1 : row.index(prior.layout.eos)]))


def deterministic_runs(t2i):
    return {
        name: run
        for name, run in t2i.config()["fixture"]["runs"].items()
        if run["temperature"] == 0
    }


def test_greedy_text_to_image_step_by_step(t2i, prior):
    expected = t2i.arrays()
    runs = deterministic_runs(t2i)
    assert runs
    for name, run in runs.items():
        config = PriorConfig(
            steps=run["timesteps"], guidance_scale=run["guidance_scale"], order_temperature=0.0
        )
        trace = expected[f"{name}/step_cond_input_ids"]
        for row, ids in enumerate(
            expected[f"{name}/input_ids"]
        ):  # captions differ in length, so each is run as a separate batch
            states = [image_slots(prior, ids)]
            sample = driver.sample(
                prior,
                None,
                config,
                grid=prior.layout.native_grid,
                generator=torch.Generator().manual_seed(0),
                condition=caption_of(prior, ids),
                z_BL=states[0][None],
                on_step=lambda info, states=states: states.append(info.state.z_BL[0]),  # type: ignore[misc]
            )
            assert sample.z_BL[0].tolist() == expected[f"{name}/out_codes"][row].tolist(), (
                name,
                row,
            )
            assert torch.equal(torch.stack(states[:-1]), image_slots(prior, trace[:, row])), (
                name,
                row,
            )


def test_first_logits_with_and_without_guidance(t2i, prior):
    expected = t2i.arrays()
    for name, run in t2i.config()["fixture"]["runs"].items():
        all_ids, reference = expected[f"{name}/input_ids"], expected[f"{name}/step0_logits_image"]
        g = run["guidance_scale"]
        if g:
            conditional, unconditional = reference.chunk(2)
            reference = (1 + g) * conditional - g * unconditional
        for ids, logits in zip(all_ids, reference, strict=True):
            z = image_slots(prior, ids)[None]
            ours = prior.logits(
                z,
                grid=prior.layout.native_grid,
                mask_fraction=1.0,
                condition=caption_of(prior, ids),
                guidance_scale=g,
            )[0]
            torch.testing.assert_close(ours, logits, atol=5e-5 * (1 + 2 * g), rtol=0)


def test_prompts_have_the_published_layout(t2i):
    stored = t2i.arrays("prompting.npz")
    layout = Layout()
    for i, (ids, mask) in enumerate(
        zip(stored["input_ids"], stored["attention_mask"], strict=True)
    ):
        block = layout.text_block(stored[f"text_{i}"].tolist())
        assert ids[mask == 1].tolist()[: len(block) + 1] == [*block, layout.soi]
        assert ids[-1] == layout.eoi


def test_mask_counts_follow_the_published_schedule(t2i):
    for name, counts in t2i.config("cosine_mask_len.json").items():
        steps, tokens = (int(part[1:]) for part in name.removeprefix("cosine_").split("_"))
        # the release leaves one token masked and returns the drawn one
        assert masked_counts(tokens, steps) == [
            *counts[:-1],
            0,
        ]
