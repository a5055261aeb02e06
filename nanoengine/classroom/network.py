"""The network that is trained: a Qwen3 of transformers with dropout added for training."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

    from .train import TrainConfig


class _DropoutLinear(nn.Linear):
    """A linear layer whose output is thinned out in training; its weights are named as before."""

    dropout = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), self.dropout, self.training)


def build_model(config: "TrainConfig", vocab_size: int) -> "Qwen3ForCausalLM":
    """A `Qwen3ForCausalLM` of the given shape with random weights, float32, on the CPU."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(config.seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_embeddings,
            tie_word_embeddings=True,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    for layer in model.model.layers:
        for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
            linear.__class__ = _DropoutLinear
            linear.dropout = config.dropout
    model.model.embed_tokens.register_forward_hook(
        lambda module, _, out: F.dropout(out, config.dropout, module.training)
    )
    return model


def load_weights(model: "Qwen3ForCausalLM", folder: Path) -> None:
    """Copy the weights of a model folder into `model`, as float32.

    Raises ValueError naming the first tensor that is missing or of another shape.
    """
    from safetensors.torch import load_file

    stored = load_file(folder / "model.safetensors")
    wanted = {n: t for n, t in model.state_dict().items() if n != "lm_head.weight"}
    for name, tensor in wanted.items():
        if name not in stored or stored[name].shape != tensor.shape:
            shape = tuple(stored[name].shape) if name in stored else "missing"
            raise ValueError(
                f"{folder}: {name} is {shape}, but the model wants {tuple(tensor.shape)}: give "
                "--init a folder of the same shape, or the shape's options"
            )
        tensor.copy_(stored[name])
