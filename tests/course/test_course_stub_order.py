"""Stubs are the same text in every process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_ALL = "from nanoengine.course import exercises, stub; print([stub(e) for e in exercises])"


def test_stubs_do_not_depend_on_the_order_of_sets() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", _ALL],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
