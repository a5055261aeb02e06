"""Numbers that lessons state in prose without a cell that computes them, recomputed here.

lesson -> {the number as the text writes it, commas apart: how to compute it}.
"""

import json
from collections.abc import Callable
from pathlib import Path

from nanoengine.bench.metrics import RunEvent, throughput
from nanoengine.config import EngineConfig
from nanoengine.course import exercises
from nanoengine.course.lessons.counts_03 import GIB, MIB, Memory
from nanoengine.engine.inputs import slot_mapping
from nanoengine.engine.kv_cache import block_bytes

READING_MINUTES = 30  # beside the exercises, our estimate


def exercise_minutes(lesson: str) -> int:
    """What the registry says that a lesson's exercises take."""
    return sum(entry.minutes for entry in exercises.values() if entry.lesson == lesson)


_BLOCK_7 = slot_mapping([7], 0, 4, block_size=4)  # of the ten-token example

QWEN3 = {"num_layers": 28, "num_kv_heads": 8, "head_dim": 128, "itemsize": 2}  # Qwen3-0.6B
QWEN3_PARAMETERS = 596_049_920
_CARD = Memory(8 * GIB, 2 * GIB, 1800 * MIB, 1300 * MIB, 28 * MIB, 0.9)  # lesson 03's by hand

# lesson 07: the job by hand, and nano-vllm's recorded repeats on an H200
_BY_HAND = [RunEvent(True, 0.0, 1.0, 100, ("a", "b")), RunEvent(False, 1.0, 3.0, 8, ("a", "b") * 4)]
_RECORDED = Path(__file__).parent.parent.parent / "figures" / "data"
_NANO = json.loads((_RECORDED / "bench_qwen3-0.6b_h200_nano-vllm.json").read_text())["output_tok_s"]


def collective_percent(size: str) -> float:
    """Of a decode step on two H200s, as recorded, what the collectives take."""
    recorded = json.loads((_RECORDED / f"scaling_qwen3-{size}_h200.json").read_text())
    two = recorded["runs"][1]
    return round(two["collectives_us"] / two["decode_step_ms"] / 10, 1)


FACTS: dict[str, dict[str, Callable[[], float]]] = {
    "01": {
        "60": lambda: exercise_minutes("01"),
        "90": lambda: exercise_minutes("01") + READING_MINUTES,
        "28": lambda: _BLOCK_7[0],
        "29": lambda: _BLOCK_7[1],
        "30": lambda: _BLOCK_7[2],
        "31": lambda: _BLOCK_7[3],
    },
    "02": {
        "70": lambda: exercise_minutes("02") - exercises["02.store_kvcache_triton"].minutes,
        "100": lambda: FACTS["02"]["70"]() + READING_MINUTES,
        "30": lambda: exercises["02.store_kvcache_triton"].minutes,
    },
    "03": {
        "45": lambda: exercise_minutes("03"),
        "75": lambda: exercise_minutes("03") + READING_MINUTES,
        "114688": lambda: block_bytes(block_size=1, **QWEN3),
        "112": lambda: block_bytes(block_size=1, **QWEN3) / (1 << 10),
        "2048": lambda: _CARD.used / MIB,
        "500": lambda: _CARD.growth / MIB,
        "5324": lambda: _CARD.share // MIB - _CARD.used // MIB,
        "4824": lambda: _CARD.budget // MIB,
        "1.1": lambda: round(QWEN3_PARAMETERS * QWEN3["itemsize"] / GIB, 1),
    },
    "04": {
        "75": lambda: exercise_minutes("04"),
        "105": lambda: exercise_minutes("04") + READING_MINUTES,
    },
    "07": {
        "55": lambda: exercise_minutes("07"),
        "85": lambda: exercise_minutes("07") + READING_MINUTES,
        "3.3": lambda: round(throughput(_BY_HAND).output_tok_s, 1),
        "14": lambda: round(100 * (1 - _NANO["runs"][0] / _NANO["median"])),
    },
    "06": {
        "45": lambda: exercise_minutes("06"),
        "75": lambda: exercise_minutes("06") + READING_MINUTES,
        "1.5": lambda: min(draw / p for draw, p in ((1.0, 0.5), (0.3, 0.2), (0.9, 0.3))),
    },
    "05": {
        "100": lambda: exercise_minutes("05"),
        "130": lambda: exercise_minutes("05") + READING_MINUTES,
        "16384": lambda: EngineConfig().max_num_batched_tokens,
        "23.2": lambda: collective_percent("0.6b"),
        "9.1": lambda: collective_percent("32b"),
    },
}
