"""The model that grades: a tiny random Qwen3, and its plain dense forward.

The forward shares no code with the engine, so a fault of the library cannot hide in both.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, INNER, LAYERS = 97, 32, 48, 2
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
MAX_LEN = 128
THETA, EPS = 10000.0, 1e-6
_SEED = 20
_SPREAD = 1.6  # weights wide enough that one wrong key or position changes the tokens

Weights = dict[str, torch.Tensor]


def make_weights() -> Weights:
    """The weights by their checkpoint names, float32, always the same."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, shape in {
            "input_layernorm": (HIDDEN,),
            "post_attention_layernorm": (HIDDEN,),
            "self_attn.q_norm": (HEAD_DIM,),
            "self_attn.k_norm": (HEAD_DIM,),
            "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
        }.items():
            shapes[f"{prefix}{name}.weight"] = shape
    generator = torch.Generator().manual_seed(_SEED)
    weights: Weights = {}
    for name, shape in sorted(shapes.items()):
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:  # a norm's gain
            weights[name] = 1.0 + 0.3 * noise
        else:
            weights[name] = noise * (_SPREAD / math.sqrt(shape[1]))
    return weights


def save_model(folder: Path) -> Path:
    """Write the model as a Hugging Face folder; returns the folder."""
    from safetensors.torch import save_file

    save_file(make_weights(), folder / "model.safetensors")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": MAX_LEN,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        "dtype": "float32",
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


def dense_logits(weights: Weights, token_ids: list[int]) -> torch.Tensor:
    """[n, VOCAB]: row i holds the logits after tokens 0..i; no cache, no batch, no padding."""
    x = weights["model.embed_tokens.weight"][torch.tensor(token_ids)]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        normed = _norm(x, weights[prefix + "input_layernorm.weight"])
        x = x + _attention(weights, prefix + "self_attn.", normed)
        normed = _norm(x, weights[prefix + "post_attention_layernorm.weight"])
        gate = F.silu(normed @ weights[prefix + "mlp.gate_proj.weight"].T)
        up = normed @ weights[prefix + "mlp.up_proj.weight"].T
        x = x + (gate * up) @ weights[prefix + "mlp.down_proj.weight"].T
    return _norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T


def _norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * gain


def _attention(weights: Weights, prefix: str, x: torch.Tensor) -> torch.Tensor:
    """Full causal attention, head by head as the definition says: [n, HIDDEN] -> [n, HIDDEN]."""
    n = len(x)
    q = (x @ weights[prefix + "q_proj.weight"].T).view(n, HEADS, HEAD_DIM)
    k = (x @ weights[prefix + "k_proj.weight"].T).view(n, KV_HEADS, HEAD_DIM)
    v = (x @ weights[prefix + "v_proj.weight"].T).view(n, KV_HEADS, HEAD_DIM)
    q = _rotate(_norm(q, weights[prefix + "q_norm.weight"]))
    k = _rotate(_norm(k, weights[prefix + "k_norm.weight"]))
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    heads = []
    for head in range(HEADS):
        kv_head = head * KV_HEADS // HEADS
        scores = q[:, head] @ k[:, kv_head].T / math.sqrt(HEAD_DIM)
        heads.append(scores.masked_fill(future, -torch.inf).softmax(-1) @ v[:, kv_head])
    return torch.cat(heads, dim=1) @ weights[prefix + "o_proj.weight"].T


def _rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [n, heads, HEAD_DIM] at positions 0..n-1, halves paired (as Qwen3)."""
    half = HEAD_DIM // 2
    frequency = THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(len(x), dtype=torch.float32)[:, None, None] * frequency
    left, right = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
