"""Fixtures that many tests share: tiny checkpoints, made once a process."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import tiny_models
import torch

from nanoengine.llm import LLM

hypothesis.settings.register_profile("default", deadline=None)  # machines are busy
hypothesis.settings.load_profile("default")
# a pytest-xdist worker's __main__ has no __spec__, which multiprocessing reads before it spawns
if not hasattr(sys.modules["__main__"], "__spec__"):
    sys.modules["__main__"].__spec__ = None
torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`checkpoint("qwen2")`: the folder of a tiny model of that kind; it has no tokenizer."""
    folders: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = tiny_models.save(tmp_path_factory.mktemp(kind), kind)
        return folders[kind]

    return get


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Qwen3 with a byte-level tokenizer; token 2 ends a text."""
    return tiny_models.save(tmp_path_factory.mktemp("text"), "qwen3", tokenizer=True)


@pytest.fixture
def make_llm() -> Iterator[Callable[..., LLM]]:
    """`make_llm(folder, **options)`: an LLM with a small pool on the CPU, closed at the end."""
    opened: list[LLM] = []

    def make(folder: Path, **options: Any) -> LLM:
        defaults: dict[str, Any] = {
            "device": "cpu",
            "kvcache_block_size": 4,
            "num_kvcache_blocks": 512,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 1024,
        }
        opened.append(LLM(folder, **{**defaults, **options}))
        return opened[-1]

    yield make
    for llm in opened:
        llm.close()
