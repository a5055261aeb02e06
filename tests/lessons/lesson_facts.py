"""Numbers that lessons state in prose without a cell that computes them, recomputed here.

lesson -> {the number as the text writes it, commas apart: how to compute it}.
"""

from collections.abc import Callable

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
}
