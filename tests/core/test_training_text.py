"""Training of the text models: what is learnt from, what is withheld, and what is preferred."""

import io
import random
import re
import tarfile
from random import Random

import pytest
import torch

from aps_core.text.chat import Message
from aps_core.text.rewards.chat_template import ChatTemplate
from training import preferences, reward, stories, text_pairs, world

SENTENCES = [
    f"The {size} {animal[0]} lives here." for size in world.SIZES for animal in world.ANIMALS
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text.tar.xz"
    files = {
        "train/austen.txt": " ".join(SENTENCES),
        "eval/austen.txt": "The old dog lives here. The old zyzzyva lives here.",
        "train/unknown.txt": "The old dog lives there.",
    }
    with tarfile.open(path, "w:xz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture(scope="module")
def tokenizer(archive):
    return text_pairs.train_tokenizer(text_pairs.read(archive, "guide"), seed=0)


@pytest.fixture
def sampler(archive, tokenizer):
    return text_pairs.PairSampler(text_pairs.read(archive, "guide"), tokenizer, 60, seed=0)


def test_the_judge_is_trained_on_other_sentences(archive):
    guide, judge, held_out = (
        text_pairs.read(archive, split) for split in ("guide", "judge", "eval")
    )
    assert sorted([*guide, *judge]) == sorted(SENTENCES)
    assert 20 < len(judge) < 100
    assert held_out == ["The old dog lives here."]  # the other has a word that is not common


def test_only_simple_sentences_are_kept():
    common = {"the", "dog", "did", "not", "see", "it", "and", "ran", "away", "mrs"}
    kept = ["The dog did not see it.", "And it ran away!"]
    text = f'"{kept[0]}" The dog saw it. See it. And the dog did not see Mrs. {kept[1]}'
    assert list(text_pairs.simple_sentences(text, common)) == kept


def test_a_sentence_answers_an_instruction_that_names_one_of_its_words():
    rng = random.Random(0)
    made = {text_pairs.pair("The lantern was lit.", rng) for _ in range(20)}
    assert made == {("Use lantern in a sentence.", "The lantern was lit.")}
    assert text_pairs.pair("It is on.", rng) == ("Say something.", "It is on.")


def test_encoded_pairs_fit_the_length_and_end(sampler, tokenizer):
    lengths = set()
    for row in sampler.draw(50):
        lengths.add(len(row.answer))
        assert len(row.prompt) + len(row.answer) <= 60
        assert row.prompt[0] == text_pairs.special(tokenizer, text_pairs.PROMPT)
        assert row.prompt[-1] == text_pairs.special(tokenizer, text_pairs.ANSWER)
        assert row.answer[-1] == sampler.eos or len(row.prompt) + len(row.answer) == 60
    assert len(lengths) > 5


def test_generated_texts_are_sentences_about_what_was_asked():
    rng = Random(0)
    known = {row[0] for table, _ in stories.TABLES.values() for row in table}
    for _ in range(500):
        prompt, answer = stories.write(rng)
        assert re.fullmatch(r"([A-Z][A-Za-z ,']*[.])( [A-Z][A-Za-z ,']*[.])*", answer), answer
        if found := re.fullmatch(r"(?:What is|Describe) (?:an? |the )?([a-z ]+)[?.]", prompt):
            assert found[1] in known | {"meal"}
            assert prompt == "Describe a meal." or found[1] in answer.lower()
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", answer), answer


def test_a_story_ends_as_ordered_and_is_otherwise_the_same():
    pairs = [[stories.write(Random(seed), good) for good in (True, False)] for seed in range(200)]
    assert sum(happy != sad for happy, sad in pairs) > 80
    assert any("wonderful" in happy for (_, happy), _ in pairs)
    assert not any("terrible" in happy for (_, happy), _ in pairs)
    assert not any("wonderful" in sad for _, (_, sad) in pairs)


def test_the_worse_answer_is_worse_in_the_way_it_is_called(sampler):
    drawn = preferences.Preferences(sampler.pair, Random(0))
    for kind in preferences.KINDS:
        for _ in range(20):
            pair = drawn.draw(kind)
            assert pair.better != pair.worse
            better, worse = pair.better.split(), pair.worse.split()
            match kind:
                case "shuffled" | "swapped":
                    assert sorted(better) == sorted(worse)
                case "dropped" | "truncated":
                    assert len(worse) < len(better)
                case "repeated":
                    assert len(worse) > len(better)
                case "replaced":
                    assert len(worse) == len(better)


def test_scores_and_their_margin_are_those_of_the_chat_template(sampler, tokenizer):
    """What training compares is what the service reads later: the end token of the template, and an
    end token after all positions of an unfinished answer.
    """
    torch.manual_seed(0)
    shape = {
        "vocab_size": text_pairs.VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }
    model = reward.ScoredLM(reward.config(tokenizer, shape, 32)).eval()
    pair = preferences.Preference("dropped", "What is oak?", "An oak is a tree.", "An oak.")
    with torch.no_grad():
        margins, _ = reward.compare(model, sampler, [pair])
        chat = (Message(role="user", content=pair.prompt),)
        template = ChatTemplate(reward.CHAT_TEMPLATE)
        scores = []
        for answer in (pair.better, pair.worse):
            ids = tokenizer.encode(template.render(chat, answer), add_special_tokens=False).ids
            hidden_1SD = model.lm.model(torch.tensor([ids])).last_hidden_state
            scores.append(model.score(hidden_1SD[:, -1])[0, 0])
    assert margins.shape == (2,)  # at the answer's end, and after all positions
    torch.testing.assert_close(margins[0], scores[0] - scores[1], atol=0.05, rtol=0.05)
