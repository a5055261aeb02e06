"""The engine without a model, and its invariants, are the engine tests' own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "engine"))
