"""The soak script works, and sees what it is there to see; its long result is committed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.sequence import Sequence
from nanoengine.layers import sampler

from soak import failures, soak  # isort: skip

COMMITTED = Path(__file__).parents[2] / "figures" / "data" / "soak.json"
# a run of a few hundred requests is too short to say anything of memory
SHORT = 300


def without_memory(problems: list[str]) -> list[str]:
    """Problems that a short run can tell."""
    return [problem for problem in problems if not problem.startswith("rss_growth")]


def test_a_short_run_is_clean() -> None:
    result = soak(SHORT)
    assert without_memory(failures(result)) == []
    assert result["requests"] >= SHORT
    assert result["tokens"] > 4 * SHORT


def leak(manager: BlockManager, seq: Sequence) -> None:
    """A free() that forgets the last block."""
    seq.block_table = seq.block_table[:-1]
    FREE(manager, seq)


def shifted(seeds: list[int], positions: list[int]) -> Any:
    """Noise that is off by one position; only the engine sees it, not the check."""
    return NOISE(seeds, [position + 1 for position in positions])


FREE, NOISE = BlockManager.free, sampler.uniform_noise


def test_it_sees_a_leak_and_a_wrong_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import soak as module

    calls: dict[str, Callable[..., Any]] = {"noise": shifted}
    monkeypatch.setattr(sampler, "uniform_noise", lambda *args: calls["noise"](*args))
    monkeypatch.setattr(BlockManager, "free", lambda *args: leak(*args) if calls else FREE(*args))
    monkeypatch.setitem(module.OPTIONS, "num_kvcache_blocks", 5000)  # room for what leaks
    check = module.Soak.wrong_outputs

    def honest(self: Any, oracle: Any) -> int:
        calls["noise"] = NOISE
        return check(self, oracle)

    monkeypatch.setattr(module.Soak, "wrong_outputs", honest)
    problems = "; ".join(failures(soak(SHORT)))
    assert "leaked_blocks=" in problems
    assert "wrong_outputs=" in problems


def test_the_committed_run_is_clean_and_long() -> None:
    result = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert failures(result) == []
    assert result["requests"] >= 50_000
    assert result["commit"]
    assert result["checked_outputs"] >= 1000
