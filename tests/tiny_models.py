"""Tiny random checkpoints of every model family, as transformers writes them, and its answers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

VOCAB = 512
MAX_LEN = 640
# head_dim 24 is not hidden / heads: a model that computes it itself goes wrong
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", {"head_dim": 24, "tie_word_embeddings": False}),
    "qwen3-tied": ("Qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
    "qwen3-bias": ("Qwen3", {"head_dim": 24, "attention_bias": True, "rms_norm_eps": 1e-2}),
    "qwen3-mha": ("Qwen3", {"head_dim": 16, "num_key_value_heads": 4, "rope_theta": 500.0}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-bias": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "llama3-rope": ("Llama", {"head_dim": 24, "rope_parameters": LLAMA3_ROPE}),
}


def build(kind: str, seed: int = 0) -> Any:
    """A random transformers model whose greedy outputs wander and whose best token is clear.

    Weights have a wide spread, and norm gains and biases are not their neutral 1 and 0: whoever
    forgets one of them gets other logits.
    """
    import transformers

    family, options = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**{**_SIZES, **options})
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1.0 + 0.3 * noise)
            else:
                parameter.copy_(noise * (0.2 if parameter.ndim == 1 else 0.35))
    return model


def save(folder: Path, kind: str, seed: int = 0, tokenizer: bool = False) -> Path:
    """Write a random checkpoint of `kind`; with a tokenizer, "<|im_end|>" ends a text."""
    model = build(kind, seed)
    model.save_pretrained(folder)
    generation: dict[str, Any] = {"bos_token_id": None}
    if tokenizer:
        from tokenizer_tools import chat_folder

        chat_folder(folder)
        generation["eos_token_id"] = 2
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return folder


class Oracle:
    """transformers' dense forward over whole sequences: no cache, no batch, no padding."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int], start: int = 0) -> torch.Tensor:
        """[len - start, vocab]: row i holds the logits of the token after position start + i."""
        return self.model(torch.tensor([list(token_ids)]), use_cache=False).logits[0, start:]

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The `count` tokens that greedy decoding gives, each from a fresh forward."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(ids, len(ids) - 1)[0].argmax()))
        return ids[len(prompt) :]


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference, in units of the largest of their values."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def random_prompts(lengths: Sequence[int], seed: int = 0, vocab: int = VOCAB) -> list[list[int]]:
    """Prompts of the given lengths; the same seed gives the same tokens."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab, (length,), generator=generator).tolist() for length in lengths]
