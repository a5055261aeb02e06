"""Common slips in attention, computed: when an answer equals one of them, its message names it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Query(NamedTuple):
    """One query and everything it may be attended to with.

    q: [heads, dim]. keys, values: [total, kv_heads, dim] of the whole sequence, cached tokens
    first. new: how many of them are this step's. place: the query's among those.
    """

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    new: int
    place: int
    scale: float


def name_the_slip(
    args: tuple[Any, ...], cached: list[int], row: int, mine: torch.Tensor
) -> str | None:
    """The slip whose result [heads, dim] equals `mine` for query `row`, in words, or None."""
    query = _query(args, cached, row)
    for words, compute in _SLIPS.items():
        value = compute(query)
        if value is not None and torch.allclose(value, mine, atol=1e-4):
            return words
    return None


def _query(args: tuple[Any, ...], cached: list[int], row: int) -> Query:
    """Row `row` of q with its sequence's keys and values, out of the cache or this step's."""
    q, k, v, k_cache, v_cache, context, scale = args
    index, start, new, total = next(
        found for found in _sequences(context, cached) if row < found[1] + found[2]
    )
    if context.block_tables is None:
        keys, values = k[start : start + new], v[start : start + new]
    else:
        size = k_cache.shape[1]
        table = context.block_tables[index].tolist()
        slots = [table[p // size] * size + p % size for p in range(total)]
        keys, values = k_cache.flatten(0, 1)[slots], v_cache.flatten(0, 1)[slots]
    return Query(q[row], keys, values, new, row - start, scale)


def _sequences(context: Any, cached: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """(index, first row of q, rows, total length) of each sequence."""
    if context.is_prefill:
        starts = context.cu_seqlens_q.tolist()
        for index, old in enumerate(cached):
            new = starts[index + 1] - starts[index]
            yield index, starts[index], new, old + new
        return
    for index, total in enumerate(context.context_lens.tolist()):
        yield index, index, 1, total


def _attend(
    query: Query,
    first: int,
    end: int,
    scale: float | None = None,
    heads: Callable[[torch.Tensor, int], torch.Tensor] | None = None,
) -> torch.Tensor | None:
    """Attention over keys [first, end); None when there are none."""
    if first >= end:
        return None
    groups = query.q.shape[0] // query.keys.shape[1]
    spread = heads or (lambda x, n: x.repeat_interleave(n, dim=1))
    keys, values = spread(query.keys[first:end], groups), spread(query.values[first:end], groups)
    scores = torch.einsum("hd,khd->hk", query.q, keys) * (query.scale if scale is None else scale)
    return torch.einsum("hk,khd->hd", scores.softmax(-1), values)


def _end(query: Query) -> int:
    """One past the last key that the query may see."""
    return len(query.keys) - query.new + query.place + 1


def _exchanged(query: Query) -> torch.Tensor | None:
    return _attend(query._replace(keys=query.values, values=query.keys), 0, _end(query))


def _softmax_over_heads(query: Query) -> torch.Tensor:
    groups = query.q.shape[0] // query.keys.shape[1]
    keys, values = (x[: _end(query)].repeat_interleave(groups, dim=1) for x in query[1:3])
    scores = torch.einsum("hd,khd->hk", query.q, keys) * query.scale
    return torch.einsum("hk,khd->hd", scores.softmax(0), values)


_SLIPS: dict[str, Callable[[Query], torch.Tensor | None]] = {
    "it sees keys that come after it: the causal mask is missing": (
        lambda x: _attend(x, 0, len(x.keys))
    ),
    "its mask starts at the sequence's first key: with history, query i sees all cached keys "
    "and i + 1 of this step": lambda x: _attend(x, 0, x.place + 1),
    "the history is left out: only this step's keys are seen": (
        lambda x: _attend(x, len(x.keys) - x.new, _end(x))
    ),
    "it does not see itself: context_lens and the diagonal count the token's own key": (
        lambda x: _attend(x, 0, _end(x) - 1)
    ),
    "it sees one key too many": lambda x: _attend(x, 0, min(_end(x) + 1, len(x.keys))),
    "the scale is missing: multiply the scores by `scale`": lambda x: _attend(x, 0, _end(x), 1.0),
    "the scale is 1/sqrt(head_dim), not the argument `scale`": (
        lambda x: _attend(x, 0, _end(x), x.q.shape[1] ** -0.5)
    ),
    "query heads and kv heads are matched wrongly: neighbouring query heads share a kv head "
    "(repeat_interleave, not repeat)": (
        lambda x: _attend(x, 0, _end(x), None, lambda t, n: t.repeat(1, n, 1))
    ),
    "K and V are exchanged": _exchanged,
    "the softmax goes over the heads: it goes over the keys": _softmax_over_heads,
}
