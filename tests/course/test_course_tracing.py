"""The allocation curve that lesson 03 draws."""

import doctest
from pathlib import Path

import torch

from nanoengine.config import EngineConfig
from nanoengine.course import tracing
from nanoengine.course.tiny import save_model
from nanoengine.engine.engine import LLMEngine
from nanoengine.layers.attention import Attention


def test_worked_example() -> None:
    assert doctest.testmod(tracing).failed == 0


def test_views_and_writes_in_place_take_nothing() -> None:
    kept = torch.zeros(8)

    def work() -> None:
        kept.view(2, 4).add_(1)

    assert max(tracing.allocated_during(work)) <= 8  # the scalar 1 at most


def test_what_stays_is_the_last_entry() -> None:
    kept = []
    assert tracing.allocated_during(lambda: kept.append(torch.ones(10)))[-1] == 40


def test_warm_up_of_twice_the_tokens_takes_twice_the_memory(tmp_path: Path) -> None:
    folder, peaks = save_model(tmp_path), []
    for tokens in (32, 64):
        options = {"device": "cpu", "kvcache_block_size": 4, "num_kvcache_blocks": 8}
        config = EngineConfig.from_kwargs(
            **options, max_num_batched_tokens=tokens, max_num_seqs=4, max_model_len=16
        )
        runner = LLMEngine(folder, config).runner
        peaks.append(max(tracing.warm_up_curve(runner)))
        layers = [m for m in runner.model.modules() if isinstance(m, Attention)]
        assert all(
            m.k_cache.data_ptr() == runner.kv_cache[0, i].data_ptr() for i, m in enumerate(layers)
        ), "the caches are bound again"
    assert 1.8 < peaks[1] / peaks[0] < 2.2
