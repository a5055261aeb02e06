"""Measures on this computer what two figures are drawn from: python figures/record.py

Writes figures/data/step_calls_cpu.json (a decode step's calls) and rank_spans_cpu.json (a decode
step on two ranks).
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from nanoengine import LLM, environment
from nanoengine.course.parallel import read_steps, recorded_spans
from nanoengine.course.step_trace import traced
from nanoengine.viz.gallery.runs import RUN_PROMPTS, engine, greedy
from nanoengine.viz.parallel import Span
from nanoengine.viz.runner import Call

DATA = Path(__file__).parent / "data"
REPEATS = 21
RANKS, STEPS = 2, 40
WARM_UP = 5  # steps on several ranks that are not looked at


def one_step() -> list[Call]:
    """The calls of the first decode step after a prefill of two prompts."""
    with engine() as llm:
        for prompt in RUN_PROMPTS:
            llm.engine.add_request(prompt, greedy(4))
        llm.engine.step()
        with traced(llm.engine) as calls:
            llm.engine.step()
    return calls


def step_calls() -> dict[str, Any]:
    """The median step of REPEATS."""
    found = sorted((one_step() for _ in range(REPEATS)), key=lambda calls: calls[0].end)
    return {
        "what": "The calls of one decode step of two sequences on the classroom model, seconds "
        f"from its beginning; the median of {REPEATS} such steps, each in a new engine.",
        **machine(),
        "calls": [call._asdict() for call in found[REPEATS // 2]],
    }


def rank_spans() -> dict[str, Any]:
    """The fastest decode step on two ranks: the one that other programs disturbed least."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"tensor_parallel_size": RANKS, "num_kvcache_blocks": 64, "overlap": False}
        with recorded_spans(Path(folder)), LLM(device="cpu", **options) as llm:
            llm.generate(RUN_PROMPTS, greedy(STEPS), use_tqdm=False)
        steps = read_steps(Path(folder))[WARM_UP:]

    def length(step: list[Span]) -> float:
        return max(span.end for span in step)

    fastest = min(steps, key=length)
    return {
        "what": f"One decode step of two sequences on the classroom model, {RANKS} ranks over "
        "gloo: what each rank did, microseconds from its beginning; the fastest of "
        f"{len(steps)} steps, the one that other programs disturbed least.",
        **machine(),
        "cores": environment.usable_cores(),
        "median_step_us": statistics.median(map(length, steps)),
        "spans": [span._asdict() for span in fastest],
    }


def machine() -> dict[str, Any]:
    """Where and with what this runs."""
    return {
        "device": f"{environment.cpu_name()}, {torch.get_num_threads()} thread",
        "versions": environment.versions(),
        **environment.git_state(),
    }


def main() -> None:
    """Measure both."""
    torch.set_num_threads(1)
    for name, measure in (("step_calls_cpu", step_calls), ("rank_spans_cpu", rank_spans)):
        path = DATA / f"{name}.json"
        path.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
