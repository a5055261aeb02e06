"""Numbers that lessons state in prose without a cell that computes them, recomputed here.

lesson -> {the number as the text writes it, commas apart: how to compute it}.
"""

from collections.abc import Callable

from nanoengine.course import exercises
from nanoengine.engine.inputs import slot_mapping

READING_MINUTES = 30  # beside the exercises, our estimate


def exercise_minutes(lesson: str) -> int:
    """What the registry says that a lesson's exercises take."""
    return sum(entry.minutes for entry in exercises.values() if entry.lesson == lesson)


_BLOCK_7 = slot_mapping([7], 0, 4, block_size=4)  # of the ten-token example

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
}
