"""Networks that score pictures: loading, input size, errors for missing weights."""

import json

import pytest
import torch
from transformers import CLIPConfig, CLIPModel, ViTConfig, ViTModel

from aps_core.errors import WeightsMissing
from aps_core.evaluation.judges import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    ClipText,
    Dino,
    image_reward,
    prepared,
)

CPU = torch.device("cpu")
PICTURES = torch.rand(2, 3, 40, 56, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("APS_WEIGHTS_DIR", str(tmp_path))
    return tmp_path


def test_missing_judge_weights_name_the_fetch_command(root):
    with pytest.raises(WeightsMissing, match="aps weights fetch clip-vit-l-14"):
        ClipText(CPU)
    with pytest.raises(WeightsMissing, match="aps weights fetch dino-vitb8"):
        Dino(CPU)
    with pytest.raises(WeightsMissing, match="image-reward"):
        image_reward()


def test_clip_t_follows_the_prompt(root):
    torch.manual_seed(0)
    small = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    words = [
        "<|startoftext|>",
        "<|endoftext|>",
        "a</w>",
        "cat</w>",
        "dog</w>",
        "ca",
        "do",
        *"acatdog",
    ]
    vocabulary = {
        word: number
        for number, word in enumerate(
            dict.fromkeys([*words, *(letter + "</w>" for letter in "catdog")])
        )
    }
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text = {**small, **ends, "vocab_size": len(vocabulary), "max_position_embeddings": 16}
    folder = root / "clip-vit-l-14"
    CLIPModel(
        CLIPConfig(
            text_config=text,
            vision_config={**small, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    ).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\nd o\ndo g</w>\n")
    judge = ClipText(CPU)
    cat, dog = judge(PICTURES, "a cat"), judge(PICTURES, "a dog")
    assert cat.shape == (2,)
    assert (cat.abs() <= 1).all()
    assert not torch.allclose(cat, dog)


def test_dino_of_a_picture_with_itself_is_one(root):
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    ViTModel(config, add_pooling_layer=False).save_pretrained(root / "dino-vitb8")
    judge = Dino(CPU)
    torch.testing.assert_close(judge(PICTURES, PICTURES), torch.ones(2))
    assert judge(PICTURES, PICTURES[:1].flip(-1)).max() < 0.9999


def test_pictures_are_cropped_to_the_networks_input_size():
    x = prepared(torch.ones(1, 3, 40, 56), 32, IMAGENET_MEAN, IMAGENET_STD)
    assert x.shape == (1, 3, 32, 32)
    assert x[0, 0, 16, 16].item() == pytest.approx((1 - 0.485) / 0.229, rel=1e-4)
