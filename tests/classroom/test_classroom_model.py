"""The shipped model: loads unchanged in transformers, and is as good as its card says."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoengine.classroom import classroom_folder
from nanoengine.classroom.card import render_card
from nanoengine.classroom.evaluate import load_prompts, model_nats


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(classroom_folder(), dtype=torch.float32)


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(classroom_folder())


@pytest.fixture(scope="module")
def quality() -> dict:
    return json.loads((classroom_folder() / "quality.json").read_text())


def test_architecture_suits_tensor_parallelism(model) -> None:
    config = model.config
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert (config.num_attention_heads, config.num_key_value_heads) == (8, 4)
    assert config.head_dim in (32, 64, 128)
    assert config.intermediate_size % 4 == config.vocab_size % 4 == 0
    assert config.tie_word_embeddings
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert config.rope_parameters["rope_theta"] == 10000.0


def test_weights_are_bfloat16_and_named_as_the_model_wants() -> None:
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        wanted = set(
            AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(classroom_folder())
            ).state_dict()
        )
    with safe_open(classroom_folder() / "model.safetensors", "pt") as weights:
        assert set(weights.keys()) == wanted - {"lm_head.weight"}
        assert {weights.get_slice(k).get_dtype() for k in weights.keys()} == {"BF16"}  # noqa: SIM118


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=60))
def test_tokenizer_round_trip(tokenizer, text: str) -> None:
    import unicodedata

    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    assert all(0 <= i < len(tokenizer) for i in ids)


def test_chat_template(tokenizer) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    asked = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert asked == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer(asked).input_ids
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert tokenizer.decode(ids) == asked


def test_end_tokens(model, tokenizer) -> None:
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert model.generation_config.eos_token_id == ends
    assert tokenizer.eos_token_id == ends[0]


def test_greeting_ends_by_itself_and_story_goes_on(model, tokenizer) -> None:
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello!"}], add_generation_prompt=True, return_dict=False,
        return_tensors="pt",
    )  # fmt: skip
    reply = model.generate(chat, do_sample=False, max_new_tokens=60)[0, chat.shape[1] :]
    assert reply[-1] == tokenizer.eos_token_id
    story = tokenizer("Once upon a time, there was a", return_tensors="pt").input_ids
    text = tokenizer.decode(model.generate(story, do_sample=False, max_new_tokens=40)[0])
    assert text.count(".") >= 1
    assert text.isascii()


def test_plain_english_is_likelier_than_shuffled(model, tokenizer) -> None:
    text = (
        "Once upon a time, there was a little fox who lived in a forest. One day, the fox "
        "found a small golden key. He wanted to show it to his best friend, the old owl. "
    )
    ids = np.array(tokenizer(text * 60).input_ids)
    shuffled = np.random.default_rng(0).permutation(ids)
    assert model_nats(model, ids).mean() < 0.3 * model_nats(model, shuffled).mean()


def test_prompts_are_twenty() -> None:
    prompts = load_prompts()
    assert sum(map(len, prompts.values())) == 20


def test_held_out_text_is_20_percent_below_the_5gram(quality: dict) -> None:
    row = quality["held_out_bits_per_byte"]["all"]
    assert row["model"] <= 0.8 * row["token_5gram"]


def test_card_is_what_the_measurements_say(model, quality: dict) -> None:
    card = (classroom_folder() / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card == render_card(classroom_folder())
    assert quality["parameters"] == sum(p.numel() for p in model.parameters())
    row = quality["held_out_bits_per_byte"]["all"]
    assert f"{row['model']:.3f} | {row['token_5gram']:.3f}" in card
    answered = [s["prompt"] for s in quality["samples"]]
    assert answered == [p for prompts in load_prompts().values() for p in prompts]


def test_loss_curve_belongs_to_this_model(model) -> None:
    log = json.loads((classroom_folder() / "loss_curve.json").read_text())
    for name in ("hidden_size", "num_hidden_layers", "head_dim", "max_position_embeddings"):
        assert log["config"][name] == getattr(model.config, name)
    held_out = [p["held_out_loss"] for p in log["curve"] if "held_out_loss" in p]
    assert len(held_out) > 10
    assert held_out[-1] < 1.02 * min(held_out)
    second = log["refined"]
    assert second["config"]["mixture_tokens"] > 0
    assert second["config"]["hidden_size"] == log["config"]["hidden_size"]
    assert sum(second["shares"].values()) == pytest.approx(1.0)
    assert second["curve"][-1]["held_out_loss"] < 1.1 * held_out[-1]
