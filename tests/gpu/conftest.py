"""Tests that need a CUDA device; without one they are skipped."""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]

SHAPE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 20_000,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


def write_model(folder: Path, **changes: Any) -> Path:
    """A model with random bfloat16 weights in the layout of its Hugging Face checkpoint."""
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | changes))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    generator = torch.Generator("cuda").manual_seed(0)
    weights = {}
    for name, parameter in model.named_parameters():
        value = torch.empty(parameter.shape, dtype=torch.bfloat16, device="cuda")
        mean, std = (1.0, 0.1) if "norm" in name else (0.0, 0.02)
        weights[name] = value.normal_(mean, std, generator=generator).cpu()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture
def make_llm(model_folder: Path):
    """Engines with small pools, closed at the end of the test."""
    from nanoengine import LLM

    made = []

    def make(**options: Any) -> LLM:
        defaults = {"max_model_len": 1024, "max_num_seqs": 40, "num_kvcache_blocks": 200}
        made.append(LLM(model_folder, **(defaults | options)))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def force_guards(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that the card lacks something: force_guards(pdl=False)."""
    from nanoengine.kernels import capability

    real = capability.detect

    def force(**changes: Any) -> None:
        monkeypatch.setattr(
            capability, "detect", lambda device: dataclasses.replace(real(device), **changes)
        )

    return force


def prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(SHAPE["vocab_size"]) for _ in range(n)] for n in lengths]
