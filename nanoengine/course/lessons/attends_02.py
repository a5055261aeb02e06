"""Lesson 02's contract for attention: fresh prefill, prefill with history, decode."""

import random
from typing import Any

import torch

from nanoengine.context import Context
from nanoengine.course.lessons.slips_02 import name_the_slip
from nanoengine.course.lessons.tensors import first_far_row, not_a_tensor, random_tensor
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference

# (cached, new, blocks) of a sequence; in decode `new` is 1, or 0 for a padded row
Spec = tuple[int, int, list[int]]
# kind, specs, heads, kv_heads, block_size, scale, seed
Args = tuple[str, list[Spec], int, int, int, float, int]
_NAMES = ("q", "k", "v", "k_cache", "v_cache", "context", "scale")
HEAD_DIM = 8
_BLOCKS = 12  # of the pool in every case
_RANDOM = 24
_UNREADABLE = torch.iinfo(torch.int32).max  # in a padded row's block table


def attend_cases() -> list[Case]:
    """Each kind from one sequence on; then groups of heads, the scale, padding; random batches."""
    scale = HEAD_DIM**-0.5
    hand: list[tuple[str, Args]] = [
        ("fresh prefill", ("fresh", [(0, 1, [3])], 2, 2, 4, scale, 1)),
        ("fresh prefill", ("fresh", [(0, 5, [3, 1])], 2, 2, 4, scale, 2)),
        ("fresh prefill, several", ("fresh", [(0, 3, [2]), (0, 6, [5, 0])], 2, 2, 4, scale, 3)),
        ("heads in groups", ("fresh", [(0, 4, [6])], 6, 2, 4, scale, 4)),
        ("scale", ("fresh", [(0, 4, [6])], 4, 2, 4, 0.9, 5)),
        ("warm-up", ("warm-up", [(0, 4, []), (0, 4, [])], 4, 2, 4, scale, 6)),
        ("decode", ("decode", [(6, 1, [7, 2])], 4, 2, 4, scale, 7)),
        ("decode, several", ("decode", [(9, 1, [7, 2, 5]), (3, 1, [0])], 4, 2, 4, scale, 8)),
        ("decode, first token", ("decode", [(0, 1, [4]), (4, 1, [8, 1])], 4, 2, 4, scale, 9)),
        ("decode, padded rows", ("decode", [(5, 1, [3, 6]), (0, 0, [])], 4, 2, 4, scale, 10)),
        ("history", ("history", [(4, 6, [7, 2, 5])], 4, 2, 4, scale, 11)),
        ("history, one query", ("history", [(8, 1, [7, 2, 5])], 4, 2, 4, scale, 12)),
        ("history inside a block", ("history", [(5, 4, [9, 0, 3])], 4, 2, 4, scale, 13)),
        (
            "history, fresh and cached",
            ("history", [(0, 3, [2]), (4, 5, [6, 10, 1]), (0, 2, [8])], 4, 2, 4, scale, 14),
        ),
        ("other block sizes", ("history", [(8, 9, [1, 4, 0])], 3, 1, 8, scale, 15)),
    ]
    rng = random.Random(202)
    for index in range(_RANDOM):
        kind = rng.choice(("fresh", "history", "decode"))
        heads, kv_heads = rng.choice(((2, 2), (4, 2), (4, 1), (6, 3)))
        scale = rng.uniform(0.2, 0.8)
        args = (kind, _random_specs(rng, kind), heads, kv_heads, 4, scale, 50 + index)
        hand.append((f"random {kind}", args))
    return [Case(check, _situation(args), args) for check, args in hand]


def _random_specs(rng: random.Random, kind: str) -> list[Spec]:
    free = rng.sample(range(_BLOCKS), _BLOCKS)
    specs = []
    for _ in range(rng.randint(1, 3)):
        cached = 0 if kind == "fresh" else rng.randint(0, 9)
        new = 1 if kind == "decode" else rng.randint(1, 6)
        need = -(-(cached + new) // 4)
        specs.append((cached, new, [free.pop() for _ in range(need)]))
    return specs


def _situation(args: Args) -> str:
    kind, specs, heads, kv_heads, size, *_ = args
    names = {
        "fresh": "fresh prefill",
        "history": "prefill with history",
        "warm-up": "warm-up, before there is a cache,",
    }
    if kind == "decode":
        lens = [cached + new for cached, new, _ in specs]
        what = f"decode, context_lens {lens}"
    else:
        parts = [
            f"{new} new token{'s' * (new > 1)}{f' after {cached} cached' if cached else ''}"
            for cached, new, _ in specs
        ]
        what = f"{names[kind]} of {'; '.join(parts)}"
    return f"{what} (block size {size}, {heads} heads, {kv_heads} kv heads)"


def attend_arguments(args: Args) -> tuple[Any, ...]:
    """Plain numbers -> (q, k, v, k_cache, v_cache, context, scale).

    The new tokens' K and V stand in the cache already, as in the engine; unwritten slots are NaN.
    """
    kind, specs, heads, kv_heads, size, scale, seed = args
    totals = [cached + new for cached, new, _ in specs]
    k_all = random_tensor(seed, sum(totals), kv_heads, HEAD_DIM)
    v_all = random_tensor(seed + 1000, sum(totals), kv_heads, HEAD_DIM)
    pool = (_BLOCKS, size, kv_heads, HEAD_DIM)
    k_cache, v_cache = torch.full(pool, torch.nan), torch.full(pool, torch.nan)
    rows: list[int] = []  # of this step's tokens in k_all
    slots: list[int] = []
    at = 0
    for (cached, new, blocks), total in zip(specs, totals, strict=True):
        for position in range(total if blocks else 0):
            block, offset = blocks[position // size], position % size
            k_cache[block, offset] = k_all[at + position]
            v_cache[block, offset] = v_all[at + position]
        rows += range(at + cached, at + total) if new else [0]
        slots += [blocks[p // size] * size + p % size for p in range(cached, total) if blocks]
        slots += [-1] * (kind == "decode" and not new)
        at += total
    q = random_tensor(seed + 2000, len(rows), heads, HEAD_DIM)
    if kind == "warm-up":
        k_cache = v_cache = torch.empty(0)
    context = _context(kind, specs, totals, slots)
    return q, k_all[rows].clone(), v_all[rows].clone(), k_cache, v_cache, context, scale


def _context(kind: str, specs: list[Spec], totals: list[int], slots: list[int]) -> Context:
    width = max(len(blocks) for *_, blocks in specs)
    fillings = [_UNREADABLE if not total else -1 for total in totals]
    tables = [
        [*blocks, *[filling] * (width - len(blocks))]
        for (*_, blocks), filling in zip(specs, fillings, strict=True)
    ]
    if kind == "decode":
        lens = _int32(totals)
        return Context(False, _int32(slots), context_lens=lens, block_tables=_int32(tables))
    new = [spec[1] for spec in specs]
    sums = [[sum(values[:i]) for i in range(len(values) + 1)] for values in (new, totals)]
    return Context(
        is_prefill=True,
        slot_mapping=_int32(slots),
        cu_seqlens_q=_int32(sums[0]),
        cu_seqlens_k=_int32(sums[1]),
        max_seqlen_q=max(new),
        max_seqlen_k=max(totals),
        block_tables=_int32(tables) if kind == "history" else None,
    )


def _int32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def compare_attend(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first query that is off, and which slip would give exactly that."""
    wrong = not_a_tensor(expected, got, _NAMES)
    if wrong:
        return wrong
    used = [row for row, (_, new) in enumerate(_queries(case.args)) if new]
    row = first_far_row([expected["result"][i] for i in used], [got["result"][i] for i in used])
    if row is None:
        return None
    row = used[row]
    return Difference(_words(case.args, row, expected["result"][row], got["result"][row]))


def _queries(args: Args) -> list[tuple[str, int]]:
    """Each row of q: (whose it is, 0 for padding)."""
    found = []
    for index, (cached, new, _) in enumerate(args[1]):
        for i in range(new):
            found.append((f"position {cached + i} of sequence {index}", 1))
        if not new:
            found.append(("padding", 0))
    return found


def _words(args: Args, row: int, wanted: list[list[float]], given: list[list[float]]) -> str:
    mine = torch.tensor(given)
    whose = f"row {row} ({_queries(args)[row][0]})"
    if mine.isnan().any():
        return (
            f"{whose} is NaN: a slot that nobody wrote took part (masking its score is too late, "
            "0 times NaN is NaN), or a softmax over no keys at all"
        )
    slip = name_the_slip(attend_arguments(args), [spec[0] for spec in args[1]], row, mine)
    if slip:
        return f"{whose} is wrong: {slip}"
    right = torch.tensor(wanted)
    head = int((~torch.isclose(mine, right, atol=1e-4).all(1)).nonzero()[0])
    return (
        f"{whose}, head {head} should begin with {right[head, 0]:.3f}, "
        f"yours begins with {mine[head, 0]:.3f}"
    )
