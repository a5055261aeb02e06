"""Random weights of a named shape are the same in every engine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nanoengine.bench import BenchError
from nanoengine.bench.model import Model, load_transformers, with_weight_files
from nanoengine.bench.peers import NanoengineSide
from nanoengine.bench.shapes import SHAPES, write_config
from nanoengine.config import EngineConfig
from nanoengine.dummy_weights import random_tensor
from nanoengine.errors import ConfigError, WeightsError
from nanoengine.llm import LLM
from nanoengine.models.config import read_model_config

CPU = torch.device("cpu")
# Parameters as the models' cards and checkpoints give them (embedding once when tied).
PARAMETERS = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "smollm2-135m": 134_515_008,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_a_config_that_the_engine_reads(shape: str, tmp_path: Path) -> None:
    config = read_model_config(write_config(shape, tmp_path))
    assert config.vocab_size == SHAPES[shape]["vocab_size"]


@pytest.mark.parametrize("shape", PARAMETERS)
def test_sizes_are_those_of_the_real_models(shape: str, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(write_config(shape, tmp_path))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[shape]


def test_an_unknown_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"qwen9.*qwen3-0\.6b"):
        write_config("qwen9", tmp_path)


def test_a_tensor_depends_on_its_name_and_the_seed_alone() -> None:
    def draw(name: str, seed: int) -> torch.Tensor:
        return random_tensor(name, [64, 64], torch.float32, CPU, seed)

    torch.manual_seed(1)
    first = draw("a", 0)
    torch.manual_seed(2)
    assert torch.equal(first, draw("a", 0))
    assert not torch.equal(first, draw("b", 0))
    assert not torch.equal(first, draw("a", 1))
    assert float(first.std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(random_tensor("x.q_norm.weight", [3], torch.float32, CPU, 0), torch.ones(3))


@pytest.mark.parametrize("way", ["drawn", "from files"])
def test_transformers_computes_the_same_tokens(way: str, tmp_path: Path) -> None:
    model = Model("tiny", write_config("tiny", tmp_path), 3, CPU, "float32", 128)
    side = NanoengineSide(model, {"kvcache_block_size": 4})
    requests = [(list(range(40, 60)), 6), ([7, 8], 3)]
    expected = side.run(requests, 0.0)
    side.close()
    if way == "from files":
        folder = with_weight_files(model)
        assert with_weight_files(model) == folder  # the second time nothing is written
        with LLM(folder, device="cpu") as llm:
            other = NanoengineSide.__new__(NanoengineSide)
            other.llm = llm
            assert other.run(requests, 0.0) == expected
        return
    oracle = load_transformers(model)
    for (prompt, count), output in zip(requests, expected, strict=True):
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(oracle(torch.tensor([ids])).logits[0, -1].argmax()))
        assert output == ids[len(prompt) :]


def test_an_engine_draws_its_weights(tmp_path: Path) -> None:
    """Without a weight file; the seed decides."""
    folder = write_config("tiny", tmp_path)

    def head(**options: Any) -> torch.Tensor:
        with LLM(folder, device="cpu", num_kvcache_blocks=4, **options) as llm:
            weight: torch.Tensor = llm.engine.runner.model.lm_head.weight
            return weight.clone()

    first = head(load_format="dummy")
    assert torch.equal(first, head(load_format="dummy", dummy_seed=0))
    assert not torch.equal(first, head(load_format="dummy", dummy_seed=1))
    with pytest.raises(WeightsError, match="safetensors"):
        head()


@pytest.mark.parametrize("options", [{"load_format": "gguf"}, {"dummy_seed": "x"}])
def test_other_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EngineConfig.from_kwargs(**options)
