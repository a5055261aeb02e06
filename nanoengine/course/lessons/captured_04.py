"""Lesson 04's words for a difference in capturing: the first thing that is not as it should be."""

from collections.abc import Callable
from typing import Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show


def compare_capture(case: Case, expected: Any, got: Any) -> Difference | None:
    """What the case looks at; a result that is no dict of graphs first."""
    check, buckets = case.args
    if got["kind"] == "NoneType":
        return Difference("expected {bucket: graph}, you returned None: is a `return` missing?")
    if "graphs" not in got:
        return Difference(f"expected a dict {{bucket: graph}}, you returned a {got['kind']}")
    return _LOOKS[check](buckets, got)


def _graphs(buckets: list[int], got: Any) -> Difference | None:
    graphs = got["graphs"]
    for bucket in buckets:
        if str(bucket) not in graphs:
            return Difference(f"there is no graph for bucket {bucket}: keys {show(list(graphs))}")
        if graphs[str(bucket)] is None:
            return Difference(f"graphs[{bucket}] is no graph that new_graph made")
        if graphs[str(bucket)] != bucket:
            return Difference(
                f"graphs[{bucket}] is the graph that new_graph made for {graphs[str(bucket)]}"
            )
    captured = [entry[0] for entry in got["captures"]]
    missing = [bucket for bucket in buckets if bucket not in captured]
    if missing:
        return Difference(f"the graph of bucket {missing[0]} was never captured")
    if got["context left"]:
        return Difference("a context is still in use afterwards: open it with `with`")
    return None


def _inputs(buckets: list[int], got: Any) -> Difference | None:
    if got["replaced"]:
        return Difference(
            f"buffers.{got['replaced']} is another tensor afterwards: graphs know the captured "
            "address; copy into it"
        )
    return Difference(got["fault"]) if got["fault"] else None


def _rows(buckets: list[int], got: Any) -> Difference | None:
    for bucket, _, _, recorded in got["captures"]:
        if recorded != [bucket]:
            what = f"computes {recorded[-1]} rows" if recorded else "does not call the model"
            if len(recorded) > 1:
                what = f"calls the model {len(recorded)} times"
            return Difference(
                f"the graph of bucket {bucket} {what}: it should call it once, on {bucket} rows"
            )
    return None


def _run_before(buckets: list[int], got: Any) -> Difference | None:
    for bucket, _, before, _ in got["captures"]:
        if bucket not in before:
            return Difference(
                f"the model never ran on {bucket} rows before bucket {bucket} was captured: its "
                "kernels would be compiled while recording, which CUDA refuses"
            )
    return None


def _order(buckets: list[int], got: Any) -> Difference | None:
    order = [entry[0] for entry in got["captures"]]
    if order == sorted(buckets, reverse=True):
        return None
    return Difference(
        f"captured in the order {show(order)}: the largest should come first, so that the memory "
        "it takes is large enough for all others"
    )


def _pool(buckets: list[int], got: Any) -> Difference | None:
    first = got["captures"][0][0] if got["captures"] else None
    for index, (bucket, owner, _, _) in enumerate(got["captures"]):
        wanted = None if index == 0 else first
        if owner != wanted:
            right = "None" if wanted is None else f"the pool of bucket {wanted}'s graph"
            mine = "None" if owner is None else f"the pool of {owner}"
            why = "graphs with pools of their own keep their own copies of all intermediates"
            if wanted is None:
                why = "before the first capture there is no memory to share"
            return Difference(
                f"bucket {bucket} should be captured with pool={right}, it was with {mine}: {why}"
            )
    return None


def _replays(buckets: list[int], got: Any) -> Difference | None:
    for bucket, words in zip(buckets, got["replays"], strict=True):
        if words:
            return Difference(f"the replay of bucket {bucket} {words}{_why(words)}")
    return None


def _why(words: str) -> str:
    if words.startswith("computed"):
        return ": is it the loop's variable as it is at the end? Bind it: def body(bucket=bucket)"
    if words.startswith("left"):
        return ": copy the model's result into it, inside the body"
    if words.startswith("gave"):
        return (
            ": the double calls the body again, so the body itself must open captured_context, on "
            "its own bucket's context (by then a loop's variable holds its last value)"
        )
    if words.startswith("raised EngineError"):
        return "; captured_context may be opened inside a step, use_context may not"
    return ""


_LOOKS: dict[str, Callable[[list[int], Any], Difference | None]] = {
    "a graph for every bucket": _graphs,
    "the model's inputs": _inputs,
    "the rows of a bucket": _rows,
    "run before capture": _run_before,
    "largest first": _order,
    "one pool": _pool,
    "replay": _replays,
    "replay inside a step": _replays,
}
