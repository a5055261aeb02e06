"""Numbers that lessons state in prose without a cell that computes them, recomputed here.

lesson -> {the number as the text writes it, commas apart: how to compute it}.
"""

from collections.abc import Callable

FACTS: dict[str, dict[str, Callable[[], float]]] = {}
