"""Write a trained model as a Hugging Face folder that any engine loads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .data import END_OF_TEXT, IM_END, IM_START, token_id
from .folder import write_manifest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen3ForCausalLM

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# What was found to read best; the engine's own defaults stay vLLM's.
GENERATION_DEFAULTS = {"do_sample": True, "temperature": 0.7, "top_p": 0.9}


def config_json(model: "Qwen3ForCausalLM", bos: int, eos: int) -> dict[str, Any]:
    """The fields of config.json; both spellings of the rotary base, for old and new readers."""
    config = model.config
    rope = {**(config.rope_parameters or {})}  # transformers 5
    same = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
        "max_position_embeddings", "rms_norm_eps", "attention_bias", "tie_word_embeddings",
        "initializer_range",
    )  # fmt: skip
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **{name: getattr(config, name) for name in same},
        "attention_dropout": 0.0,
        "rope_theta": rope["rope_theta"],
        "rope_parameters": {"rope_type": "default", "rope_theta": rope["rope_theta"]},
        "use_sliding_window": False,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def write_json(path: Path, value: object) -> None:
    """Write JSON the same way every time, so that hashes and diffs mean something."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write_folder(
    out: Path, model: "Qwen3ForCausalLM", tokenizer: "Tokenizer", loss_curve: dict[str, Any]
) -> None:
    """Write config, bfloat16 weights, tokenizer, chat template, loss curve and manifest.

    The output projection is the embedding (tied), so it is not stored a second time.
    """
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    bos, eos, end = (token_id(tokenizer, t) for t in (IM_START, IM_END, END_OF_TEXT))
    weights = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # safetensors writes 0600; others load it too
    write_json(out / "config.json", config_json(model, bos, eos))
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    write_json(out / "tokenizer_config.json", tokenizer_config(model))
    generation = {"bos_token_id": bos, "eos_token_id": [eos, end], "pad_token_id": end}
    write_json(out / "generation_config.json", {**generation, **GENERATION_DEFAULTS})
    write_json(out / "loss_curve.json", loss_curve)
    write_manifest(out)


def tokenizer_config(model: "Qwen3ForCausalLM") -> dict[str, Any]:
    """tokenizer_config.json: special tokens and the ChatML template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "model_max_length": model.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
