"""What figures show that lessons work out: the data of `nanoengine figures` beyond the engine's."""

from typing import Any

from nanoengine.course.lessons.traces_04 import mean_timelines
from nanoengine.course.parallel import model_cuts
from nanoengine.viz.gallery.recorded import recorded
from nanoengine.viz.gallery.runs import engine
from nanoengine.viz.parallel import Span

RANKS = 2
GRAPHS = "graphs_h200.json"
SHOWN_US = 700  # of the eager run: its kernels can be told apart


def eager_and_replayed() -> dict[str, Any]:
    """What `step_timeline` draws: one prompt's kernels, launched one by one and replayed."""
    data = recorded(GRAPHS)
    once = data["eager_and_graph"]
    run = once["runs"][0]
    note = f"Mean times of a run recorded on an {data['device']['name']}."
    runs = mean_timelines(once["launches"], run["eager_ms"], run["graph_ms"], note)
    return {"runs": runs, "until": SHOWN_US}


def tensor_parallel_cuts() -> dict[str, Any]:
    """What `weight_cuts` draws: the classroom model's weights on two ranks."""
    with engine() as llm:
        return {"weights": model_cuts(llm.engine.model_config, RANKS)}


def two_ranks() -> dict[str, Any]:
    """What `step_timeline` of several ranks draws: a step that figures/record.py measured."""
    step = recorded("rank_spans_cpu.json")
    source = f"Recorded: {step['device']} a rank, torch {step['versions']['torch']}, gloo."
    return {"spans": [Span(**span) for span in step["spans"]], "source": source}
