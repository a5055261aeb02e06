"""What the figures of benchmarks show: the recorded results of the article's workload."""

from typing import Any

from nanoengine.viz.gallery.recorded import DATA, FiguresError, figures_folder, recorded

RESULTS = "bench_qwen3-0.6b_h200_*.json"
STEPS = "graphs_h200.json"


def results() -> list[dict[str, Any]]:
    """Every recorded result. Raises FiguresError when there is none, or their work differs."""
    paths = sorted((figures_folder() / DATA).glob(RESULTS))
    found = [recorded(path.name) for path in paths]
    if not found:
        raise FiguresError(f"no {RESULTS} in {figures_folder() / DATA}: restore them with git")
    work = {(result["device"], result["output_tokens"]) for result in found}
    if len(work) > 1:
        raise FiguresError(
            f"{RESULTS} are of different work, {sorted(work)}: compare like with like"
        )
    return found


def bars() -> dict[str, Any]:
    """What `benchmark_bars` draws: all engines, and the rate that the floor allows."""
    found = results()
    limit = found[0]["output_tokens"] / min(result["floor_s"] for result in found)
    return {"results": found, "limit": limit}


def steps() -> dict[str, Any]:
    """What `step_times` draws: the kernel lab's decode step, one graph, by number of rows."""
    data = recorded(STEPS)
    rows = sorted(data["one_graph_a_step"]["steps"], key=lambda step: step["rows"])
    context = {row["context"] for row in rows}
    if len(context) > 1:
        raise FiguresError(f"{STEPS} mixes contexts {sorted(context)}: draw one at a time")
    name = f"one graph a step, {data['model']} on an {data['device']['name']}"
    return {
        "batches": [row["rows"] for row in rows],
        "measured_ms": [[row["ms"]] for row in rows],
        "floor_ms": [row["floor"] for row in rows],
        "name": f"{name}, {context.pop()} tokens a sequence",
    }
