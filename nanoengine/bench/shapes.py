"""Models of a known shape with random weights: real work for a benchmark, without a download.

A weight depends on the seed and on its name in a checkpoint alone, so a peer that is filled by
the same function has the same weights, and so has every tensor-parallel rank.
"""

import json
from pathlib import Path
from typing import Any

import torch

from nanoengine.bench import BenchError
from nanoengine.dummy_weights import random_tensor

_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "dtype": "bfloat16",
}


def _qwen3(hidden: int, inner: int, layers: int, heads: int, tied: bool) -> dict[str, Any]:
    return _QWEN3 | {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "tie_word_embeddings": tied,
    }


# The sizes in the models' own config.json files on the Hugging Face hub.
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32, tied=False),
    "qwen3-32b": _qwen3(5120, 25600, 64, 64, tied=False),
    "smollm2-135m": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    # heads for up to 8 ranks
    "tiny": _qwen3(64, 128, 2, 8, tied=True)
    | {"vocab_size": 512, "num_key_value_heads": 2, "head_dim": 16, "dtype": "float32"},
}


def write_config(shape: str, folder: Path) -> Path:
    """Write the shape's config.json into `folder`; returns the folder.

    Raises BenchError for a shape that is not known.
    """
    if shape not in SHAPES:
        raise BenchError(f"shape={shape!r} is not known: use one of {', '.join(SHAPES)}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[shape], indent=1), encoding="utf-8")
    return folder


@torch.no_grad()
def fill_transformers(model: Any, seed: int) -> None:
    """Fill a transformers model with the same weights."""
    for name, parameter in model.named_parameters():  # a tied head is not listed twice
        parameter.copy_(
            random_tensor(name, list(parameter.shape), parameter.dtype, parameter.device, seed)
        )
