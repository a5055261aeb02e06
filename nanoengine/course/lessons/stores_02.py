"""Lesson 02's contract for writing K and V: every row in its slot, nothing anywhere else."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from nanoengine.course.lessons.tensors import same_bits
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
_NAMES = ("k", "v", "k_cache", "v_cache", "slot_mapping")
_RANDOM = 30
_FENCE = -7777.0
_OTHER_NEGATIVE = "other negative slots"
_BEYOND = "a slot beyond the cache"


def store_cases() -> list[Case]:
    """(slots, blocks, block_size, kv_heads, head_dim, sliced) from one token to random batches."""
    hand: list[tuple[str, Args]] = [
        ("one token", ([9], 4, 4, 1, 2, False)),
        ("several tokens", ([8, 9, 10, 11, 20, 21], 8, 4, 2, 3, False)),
        ("several sequences", ([13, 2, 31, 0], 8, 4, 2, 4, False)),
        ("a padded row", ([5, -1], 2, 4, 2, 2, False)),
        ("padded rows only", ([-1, -1], 3, 4, 1, 3, False)),
        ("a padded row before others", ([-1, 6, 3], 2, 4, 2, 4, False)),
        (_OTHER_NEGATIVE, ([-3, 7], 2, 4, 1, 4, False)),
        ("a padded row and slot 0", ([0, -1], 2, 4, 2, 5, False)),
        ("a slice of a wider tensor", ([14, 3, 9], 4, 4, 2, 4, True)),
        ("other block sizes", ([17, 40, 22], 3, 16, 2, 2, False)),
    ]
    rng = random.Random(201)
    for _ in range(_RANDOM):
        blocks, size = rng.randint(2, 6), rng.choice((4, 8))
        count = rng.randint(1, 8)
        slots = [s if rng.random() < 0.8 else -1 for s in rng.sample(range(blocks * size), count)]
        shape = (blocks, size, rng.choice((1, 2, 3)), rng.choice((2, 4)), rng.random() < 0.5)
        hand.append(("random batches", (slots, *shape)))
    return [_case(check, args) for check, args in hand]


def reference_cases() -> list[Case]:
    """The same, and a slot that does not exist (a kernel would write over foreign memory)."""
    return [*store_cases(), _case(_BEYOND, ([3, 8], 2, 4, 1, 2, False))]


def kernel_cases() -> list[Case]:
    """A part of them: Triton's interpreter takes a millisecond a token."""
    return store_cases()[: 10 + _RANDOM // 4]


def _case(check: str, args: Args) -> Case:
    slots, blocks, size, *_, sliced = args
    where = "; k and v are slices of a wider tensor, as in the engine" if sliced else ""
    return Case(check, f"slot_mapping {show(slots)}, {blocks} blocks of {size}{where}", args)


def store_arguments(args: Args) -> Tensors:
    """Plain numbers -> tensors; token i's K is i+1 and its V -(i+1), with head and column behind.

    The caches hold a number of their own in each slot, so that every change shows.
    """
    slots, blocks, size, heads, dim, sliced = args
    width = 2 * heads + 1 if sliced else heads
    detail = torch.arange(heads * dim, dtype=torch.float32).view(1, heads, dim) / 64
    k, v = torch.zeros(2, len(slots), width, dim)[..., :heads, :]
    k.copy_(torch.arange(1.0, len(slots) + 1).view(-1, 1, 1) + detail)
    v.copy_(-k)
    held = torch.arange(blocks * size, dtype=torch.float32).view(blocks, size, 1, 1)
    caches = torch.full((2, blocks + 2, size, heads, dim), _FENCE)
    k_cache, v_cache = caches[:, 1:-1]  # a fence of one block before and behind
    k_cache.copy_(1000 + held)
    v_cache.copy_(2000 + held)
    return k, v, k_cache, v_cache, torch.tensor(slots, dtype=torch.int32)


def observe_store(function: Callable[..., Any], args: Tensors) -> dict[str, Any]:
    """Both caches afterwards, [slots][kv_heads * head_dim]; whether memory around them was written;
    which input was changed, if any.
    """
    before = [arg.clone() for arg in args]
    k, _, k_cache, v_cache, slots = args
    beyond = bool(len(slots)) and int(slots.max()) >= k_cache.shape[0] * k_cache.shape[1]
    if beyond:
        try:
            function(*args)
        except Exception as error:
            return {"raised": type(error).__name__}
        return {"raised": None}
    function(*args)
    fence = k_cache._base  # both caches and what lies around them
    assert fence is not None
    broken = bool((fence[:, [0, -1]] != _FENCE).any())
    inputs = [i for i in (0, 1, 4) if not same_bits(args[i], before[i])]
    row = k.shape[1] * k.shape[2]
    return {
        "k": k_cache.reshape(-1, row).tolist(),
        "v": v_cache.reshape(-1, row).tolist(),
        "fence": broken,
        "changed": _NAMES[inputs[0]] if inputs else None,
    }


def compare_store(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first slot that holds something else, and what that is."""
    if "raised" in expected:
        if got["raised"] is not None:
            return None
        return Difference("the contract says EngineError, yours raised nothing", binding=False)
    if got["changed"]:
        return Difference(f"your function changed {got['changed']}: only the caches are written")
    if got["fence"]:
        return Difference(
            "your function wrote outside the caches: leave when the slot is negative, and mask "
            "the columns that are not the token's"
        )
    k, v, k_cache, v_cache, _ = store_arguments(case.args)
    known = _known_rows(k, v, k_cache, v_cache)
    for name, letter in (("k_cache", "k"), ("v_cache", "v")):
        for slot, (wanted, given) in enumerate(zip(expected[letter], got[letter], strict=True)):
            if wanted != given:
                return Difference(
                    f"slot {slot} of {name} should hold {_what(known, wanted, slot)}, it holds "
                    f"{_what(known, given, slot)}"
                    + _why(case, slot, known.get(tuple(wanted), ""), known.get(tuple(given), "")),
                    binding=case.check != _OTHER_NEGATIVE,  # only -1 occurs in the engine
                )
    return None


def _known_rows(*tensors: torch.Tensor) -> dict[tuple[float, ...], str]:
    """A row's numbers -> what it is."""
    k, v, k_cache, v_cache = (t.flatten(-2) for t in tensors)
    named = (
        ("slot {}'s old K", k_cache.flatten(0, 1)),
        ("slot {}'s old V", v_cache.flatten(0, 1)),
        ("token {}'s K", k),
        ("token {}'s V", v),
    )
    return {
        tuple(row): name.format(i) for name, rows in named for i, row in enumerate(rows.tolist())
    }


def _what(known: dict[tuple[float, ...], str], row: list[float], slot: int) -> str:
    name = known.get(tuple(row), "numbers that are no token's row")
    return "what it held before" if name.startswith(f"slot {slot}'s old") else name


def _why(case: Case, slot: int, held: str, found: str) -> str:
    """The likely reason. held, found: what the slot should hold and holds, or ""."""
    slots, blocks, size, *_ = case.args
    if slot not in slots and any(s < 0 and s + blocks * size == slot for s in slots):
        return ": a negative slot means nowhere, but torch counts it from the end"
    if slot not in slots and slot == 0 and any(s < 0 for s in slots):
        return ": a negative slot means nowhere, not slot 0"
    if found.startswith(f"slot {slot}'s old") and slot == 0 and any(s < 0 for s in slots):
        return ": a padded row must write nothing at all, not even what was there"
    if found.startswith(f"slot {slot}'s old"):
        return ": nothing was written there (a copy of the cache does not count)"
    if not found and slot not in slots and slot - 1 in slots:
        return ": more than the row was written into the slot before it; mask the columns behind"
    if held[-1:] != found[-1:] and found.startswith("token"):
        return ": K and V are exchanged"
    if "old" in held:
        return ": only this step's slots may change"
    return ""


def draw_store(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The cache's slots: which token's K each should hold, and holds in the student's."""
    from nanoengine.viz.kv_pool import slot_owners

    if "raised" in expected:
        return None
    slots, blocks, size, *_ = args
    right = {slot: f"t{i}" for i, slot in enumerate(slots) if slot >= 0}
    first = {i + 1.0: f"t{i}" for i in range(len(slots))}
    mine = {s: first[row[0]] for s, row in enumerate(got["k"]) if row[0] in first}
    mine |= {s: "?" for s, row in enumerate(got["k"]) if row[0] not in first and row[0] < 1000}
    return slot_owners(right, blocks, size, got=mine)
