"""Which architectures the engine runs, keyed on `architectures` of `config.json`.

Qwen3, Qwen2 and Llama are one decoder with three switches, so one class serves them all; a
family says how the switches stand and which defaults transformers fills in for absent fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanoengine.errors import ModelError


@dataclass(frozen=True, slots=True)
class Family:
    """What an architecture fixes, and transformers' defaults for fields that config.json omits.

    model_type: what `config.json` calls the family, too.
    always_qkv_bias: q, k and v have a bias and o has none, whatever `attention_bias` says (Qwen2).
    qk_norm: RMSNorm over each query and key head before the rotation (Qwen3).
    has_mlp_bias: `mlp_bias` is obeyed (Llama); elsewhere transformers ignores it.
    """

    model_type: str
    always_qkv_bias: bool = False
    qk_norm: bool = False
    has_mlp_bias: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
}
_LLAMA: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
}

FAMILIES: dict[str, Family] = {
    "Qwen3ForCausalLM": Family("qwen3", qk_norm=True, defaults={**_QWEN, "head_dim": 128}),
    "Qwen2ForCausalLM": Family("qwen2", always_qkv_bias=True, defaults=_QWEN),
    "LlamaForCausalLM": Family("llama", has_mlp_bias=True, defaults=_LLAMA),
}


def family_of(raw: Mapping[str, Any], path: Path) -> tuple[str, Family]:
    """The first known name in `architectures`. Raises ModelError listing what is known."""
    names = raw.get("architectures") or []
    if not isinstance(names, list):
        raise ModelError(f"{path}: architectures={names!r} is not a list")
    for name in names:
        if isinstance(name, str) and name in FAMILIES:
            _refuse_another_type(raw.get("model_type"), name, path)
            return name, FAMILIES[name]
    raise ModelError(
        f"{path}: architectures={names!r} is not known here: use one of {', '.join(FAMILIES)}"
    )


def _refuse_another_type(model_type: object, name: str, path: Path) -> None:
    """Architecture and type of two different families: whichever is meant, the other is wrong."""
    others = {family.model_type for family in FAMILIES.values()} - {FAMILIES[name].model_type}
    if isinstance(model_type, str) and model_type in others:
        raise ModelError(
            f"{path}: architectures says {name}, model_type says {model_type!r}: keep the right one"
        )
