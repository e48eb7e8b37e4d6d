"""What the reward model reads at undecided positions, and in which order tokens are decided."""

from itertools import pairwise
from typing import Literal, cast

import pytest
import torch

from aps_core.text.chat import Message, TextIds
from aps_core.text.config import TextConfig
from aps_core.text.filtering import drawn_at, filtered
from aps_core.text.relaxations import EntropyAware, Expectation, RelaxationSpec, StraightThrough
from aps_core.text.rewards.alignment import SoftAnswer
from aps_core.text.sampling import diffusion_generate
from aps_core.types import TextPrior

PHI = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0)) * 2


def test_each_member_blends_expectation_and_token():
    soft, hard = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3)
    certain = torch.full((2, 3, 40), -100.0).index_fill(-1, torch.tensor(5), 100.0)
    flat = torch.zeros(2, 3, 40)
    ids = torch.zeros(2, 3, dtype=torch.long)

    def blend(member, phi) -> torch.Tensor:
        answer = SoftAnswer(ids, ids[:, 0], ids[:, 0] > 0, weight=member.weight(phi))
        value = answer.relaxed(soft, hard)
        assert torch.equal(torch.autograd.grad(value.sum(), soft)[0], torch.ones(2, 3))
        return value.detach()

    assert not blend(Expectation(), PHI).any()
    assert (blend(StraightThrough(), PHI) == 1).all()
    torch.testing.assert_close(blend(EntropyAware(), flat), hard)
    torch.testing.assert_close(blend(EntropyAware(), certain), torch.zeros(2, 3))
    assert ((blend(EntropyAware(), PHI) > 0) & (blend(EntropyAware(), PHI) < 1)).all()


def test_members_are_chosen_by_name():
    chosen = TextConfig(relaxation={"type": "entrgi", "token": "likeliest"}).relaxation
    assert (chosen.draws, EntropyAware().draws, Expectation().draws) == (False, True, False)
    assert isinstance(TextConfig(relaxation={"token": "likeliest"}).relaxation, StraightThrough)


def test_a_new_member_needs_one_class(monkeypatch):
    monkeypatch.setattr(RelaxationSpec, "family", dict(RelaxationSpec.family))

    class Half(RelaxationSpec):
        """Half expectation, half token."""

        type: Literal["half"] = "half"

        def weight(self, phi_BLV):
            return 0.5

    assert TextConfig(relaxation={"type": "half"}).relaxation == Half()


@pytest.mark.parametrize(
    "settings",
    [{"top_k": None, "top_p": None}, {"top_k": 5, "top_p": None}, {"top_k": None, "top_p": 0.6}],
)
def test_quantiles_follow_the_filtered_distribution(settings):
    """Evenly spaced quantiles give every token its share."""
    config = TextConfig(temperature=0.7, **settings)
    count = 2000
    uniform_N = (torch.arange(count) + 0.5) / count
    drawn_N = drawn_at(PHI[0, :1].expand(count, -1), uniform_N, config)
    share_V = torch.bincount(drawn_N, minlength=40) / count
    expected_V = filtered(PHI[0, :1], config).softmax(-1)[0]
    torch.testing.assert_close(share_V, expected_V, atol=1.5 / count, rtol=0)


class Eager:
    """A prior that is most certain of the end token at every second position."""

    mask_id, eos_id = 4, 3

    def logits(self, ids_BS, attention_BS=None):
        logits = torch.tensor([1.0, 0.0, 0.0, -1.0, -90.0]).repeat(*ids_BS.shape, 1)
        logits[:, 1::2] = torch.tensor([0.0, 0.0, 0.0, 9.0, -90.0])
        return logits


def orders(**settings) -> list[list[int]]:
    seen: list[list[int]] = []
    config = TextConfig(max_new_tokens=6, steps=6, temperature=0, **settings)
    diffusion_generate(
        cast(TextPrior, Eager()),
        torch.zeros(2, 1, dtype=torch.long),
        config,
        generator=torch.Generator().manual_seed(0),
        on_step=lambda info: seen.append(info.state.z_BL[0, 1:].tolist()),
    )
    return seen


@pytest.mark.parametrize("settings", [{}, {"alg_temp": 0.5}], ids=["ranked", "drawn"])
def test_end_tokens_can_be_kept_for_last(settings):
    early, late = orders(**settings), orders(end_last=True, **settings)
    assert 3 in early[2]
    assert all(3 not in ids or ids.count(0) == 3 for ids in late)
    assert 4 not in late[-1]


def test_rows_with_fewer_masks_keep_their_tokens():
    """Rows of a batch decide independently, although they are sampled together."""
    prompt_BP = torch.zeros(2, 3, dtype=torch.long)
    config = TextConfig(max_new_tokens=4, steps=4, temperature=0)

    class Reluctant(Eager):
        """Predicts the mask itself in the second row."""

        def logits(self, ids_BS, attention_BS=None):
            logits = super().logits(ids_BS)
            logits[1, -2:, self.mask_id] = 99.0
            return logits

    states = []
    diffusion_generate(
        cast(TextPrior, Reluctant()),
        prompt_BP,
        config,
        generator=torch.Generator(),
        on_step=lambda info: states.append(info.state.z_BL),
        independent=True,
    )
    for before, after in pairwise(states):
        kept = before != 4
        assert torch.equal(after[kept], before[kept])
    assert (states[-1][0] != 4).all()


def test_chats_are_rendered_for_both_kinds_of_prior():
    ids = {"vocab_size": 9, "mask_token_id": 1, "eos_token_id": 2}
    system, user, answer = (
        Message(role=role, content=role.upper()) for role in ("system", "user", "assistant")
    )
    many = TextIds(**ids)
    assert many.render("USER") == many.render((user,))
    assert "You are a helpful assistant" in many.render((user,))
    assert many.render((system, user, answer, user)) == (
        "<|im_start|>system\nSYSTEM<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n"
        "<|im_start|>assistant\nASSISTANT<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    one = TextIds(**ids, prompt_format="[{prompt}]")
    assert one.render((user,)) == "[USER]"
    assert one.render((system, user)) == "[System: SYSTEM\n\nUser: USER]"
