"""Lesson 04's questions with numbers: what is drawn, the right value, what a wrong one shows."""

import random
from typing import Any

from nanoengine.engine.cuda_graph import graph_buckets, pick_bucket

_GRAPH_LIMIT = 512  # nano-vllm captures no larger batch, and runs larger ones eagerly


# -- launches ----------------------------------------------------------------------------------


def draw_launches(rng: random.Random) -> dict[str, Any]:
    """Kernels of a step, microseconds of a launch and of a kernel; the launch is the longer one."""
    return {"n": rng.randrange(150, 400, 10), "h": rng.randint(9, 30), "k": rng.randint(2, 6)}


def launches_text(drawn: dict[str, Any]) -> str:
    """The question about them."""
    return (
        f"A decode step has {drawn['n']} kernels. The host needs {drawn['h']} microseconds to "
        f"launch one; each then computes for {drawn['k']}. The host never waits: it launches one "
        "after the other. How many microseconds after the first launch began is the last kernel "
        "done?"
    )


def launches_answer(drawn: dict[str, Any]) -> int:
    """Microseconds until the last kernel is done."""
    return int(drawn["n"] * drawn["h"] + drawn["k"])


def why_launches(drawn: dict[str, Any], given: Any) -> str:
    """What a wrong number of microseconds forgets."""
    n, h, k = drawn["n"], drawn["h"], drawn["k"]
    if given == n * k:
        return "that is what the GPU computes: the time of a replay. It waits for most launches."
    if given == n * (h + k):
        return "the host does not wait for a kernel before it launches the next."
    if given == n * h:
        return "nearly: then the last kernel is launched, but it still has to compute."
    return "all launches one after the other, and then the last kernel."


# -- buckets -----------------------------------------------------------------------------------


def nano_buckets(max_num_seqs: int) -> list[int]:
    """The list of the article's engine: without the end where a step of 16 does not hit it."""
    return [1, 2, 4, 8, *range(16, min(max_num_seqs, _GRAPH_LIMIT) + 1, 16)]


def without_graph(max_num_seqs: int) -> list[int]:
    """Batch sizes for which the article's run_model raises StopIteration."""
    largest = min(max_num_seqs, _GRAPH_LIMIT)
    buckets = nano_buckets(max_num_seqs)
    return [size for size in range(1, largest + 1) if pick_bucket(size, buckets) is None]


def draw_stop(rng: random.Random) -> dict[str, Any]:
    """Values on either side of every border of the rule, in a mixed order."""
    values = [
        rng.choice((4, 5, 6, 8)),
        rng.choice((9, 10, 12, 15)),
        16 * rng.randint(2, 30),
        16 * rng.randint(2, 30) + rng.randint(1, 15),
        16 * rng.randint(2, 30) + rng.randint(1, 15),
        rng.choice((520, 600, 1000)),
    ]
    rng.shuffle(values)
    return {"values": sorted(set(values), key=values.index)}


def stop_text(drawn: dict[str, Any]) -> str:
    """The question about the drawn values of max_num_seqs."""
    return (
        f"max_num_seqs may be one of {drawn['values']}. With which of them can nano-vllm's "
        "run_model raise StopIteration? Its buckets are 1, 2, 4, 8 and the multiples of 16 up to "
        "min(max_num_seqs, 512); above 512 it runs eagerly. Give a list, ascending."
    )


def stop_answer(drawn: dict[str, Any]) -> list[int]:
    """Those that leave a batch without a graph, ascending."""
    return [value for value in sorted(drawn["values"]) if without_graph(value)]


def why_stop(drawn: dict[str, Any], given: Any) -> str:
    """The first value that is wrong, and why."""
    if not isinstance(given, list):
        return "give a list of numbers, for example [24, 100]."
    right = stop_answer(drawn)
    for value in drawn["values"]:
        if value in given and value not in right:
            if value > _GRAPH_LIMIT:
                return f"with {value} the buckets go to 512, and larger batches run eagerly."
            if value <= 8:
                return f"with {value} every batch fits into one of 1, 2, 4, 8."
            return f"{value} is a multiple of 16, so it is a bucket itself."
        if value in right and value not in given:
            sizes = without_graph(value)
            return (
                f"with {value}, a batch of {sizes[0]} finds no bucket: {sizes[0] - 1} is the last."
            )
    return "in ascending order, each once."


def draw_padded(rng: random.Random) -> dict[str, Any]:
    """A batch in the last bucket, which no step hits, and one between two steps."""
    most = 16 * rng.randint(3, 20) + rng.randint(3, 14)
    return {"most": most, "batch": rng.choice((most - 1, 16 * (most // 16) - rng.randint(2, 13)))}


def padded_text(drawn: dict[str, Any]) -> str:
    """The question about the drawn engine and batch."""
    return (
        f"This engine runs with max_num_seqs={drawn['most']} (buckets as in graph_buckets). A step "
        f"has {drawn['batch']} sequences. How many rows of its graph are padding?"
    )


def padded_answer(drawn: dict[str, Any]) -> int:
    """Padded rows of the batch's graph."""
    batch: int = drawn["batch"]
    bucket = pick_bucket(batch, graph_buckets(drawn["most"]))
    assert bucket is not None
    return bucket - batch


def why_padded(drawn: dict[str, Any], given: Any) -> str:
    """What a wrong number of rows shows."""
    bucket = pick_bucket(drawn["batch"], graph_buckets(drawn["most"]))
    if given == bucket:
        return "that is the bucket; the question asks for its padded rows."
    if given == -drawn["batch"] % 16:
        return f"the last bucket is max_num_seqs itself, {drawn['most']}, not a multiple of 16."
    return f"the bucket is the smallest that holds {drawn['batch']}: {bucket}."
