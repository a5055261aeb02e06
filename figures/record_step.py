"""Measures one decode step's calls on this computer: python figures/record_step.py

Writes figures/data/step_calls_cpu.json, which `nanoengine figures` draws the call chain from.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import torch

from nanoengine import environment
from nanoengine.course.step_trace import traced
from nanoengine.viz.gallery.runs import RUN_PROMPTS, engine, greedy
from nanoengine.viz.runner import Call

REPEATS = 21
TARGET = Path(__file__).parent / "data" / "step_calls_cpu.json"


def one_step() -> list[Call]:
    """The calls of the first decode step after a prefill of two prompts."""
    with engine() as llm:
        for prompt in RUN_PROMPTS:
            llm.engine.add_request(prompt, greedy(4))
        llm.engine.step()
        with traced(llm.engine) as calls:
            llm.engine.step()
    return calls


def measure() -> dict[str, Any]:
    """The median step of REPEATS, with where and with what it ran."""
    torch.set_num_threads(1)
    found = sorted((one_step() for _ in range(REPEATS)), key=lambda calls: calls[0].end)
    calls = found[REPEATS // 2]
    return {
        "what": "The calls of one decode step of two sequences on the classroom model, seconds "
        f"from its beginning; the median of {REPEATS} such steps, each in a new engine.",
        "device": f"{environment.cpu_name()}, {torch.get_num_threads()} thread",
        "versions": environment.versions(),
        **environment.git_state(),
        "median_step_s": statistics.median(calls[0].end for calls in found),
        "calls": [call._asdict() for call in calls],
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    print(TARGET)
