"""Lesson 05's contract for reading messages: what is taken out of the buffer, what is refused."""

import random
from array import array
from collections.abc import Callable
from typing import Any

from nanoengine.course.lessons.frames_05 import OLD, RANDOM_CASES, Args, payload_of
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, plain, show

_FAULTS = {
    "magic": "the buffer holds no message: it does not begin with MAGIC",
    "ahead": "the message in the buffer is the one after the expected",
    "behind": "the message in the buffer is an old one",
    "twice": "the same piece is read twice",
    "missed": "a piece was missed",
    "beyond the message": "the header's length is beyond the message's end",
    "beyond the buffer": "the header's length is beyond the buffer's end",
}


def read_cases() -> list[Case]:
    """(room behind the header, number, kind, values, fault or "")."""
    hand: list[tuple[str, Args]] = [
        ("one piece", (32, 0, 1, [5, 6, 7], "")),
        ("one value", (32, 7, 3, [-1], "")),
        ("a message of no values", (16, 3, 0, [], "")),
        ("exactly full", (12, 4_000_000_000, 1, [5, 6, 7], "")),
        ("two pieces", (8, 4, 1, [5, 6, 7], "")),
        ("many pieces", (4, 9, 2, [10, -20, 30, -40, 50], "")),
        ("longer than a large buffer", (1000, 8, 1, list(range(700)), "")),
        ("a room of odd size", (7, 5, 1, [1, 2, 3], "")),
    ]
    hand += [(f"refuses: {fault}", (8, 4, 1, [5, 6, 7, 8, 9], fault)) for fault in _FAULTS]
    rng = random.Random(507)
    for _ in range(RANDOM_CASES):
        values = [rng.randint(-(2**31), 2**31 - 1) for _ in range(rng.randint(0, 20))]
        args = (4 * rng.randint(1, 12), rng.randrange(2**32), rng.randint(1, 9), values, "")
        hand.append(("random messages", args))
    return [Case(check, _read_situation(args), args) for check, args in hand]


def _read_situation(args: Args) -> str:
    room, number, _, values, fault = args
    if fault:
        return _FAULTS[fault]
    shown = show(values) if len(values) < 8 else f"{len(values)} values"
    pieces = max(1, -(-4 * len(values) // room))
    return f"message {number}, {shown} in {pieces} piece{'s' * (pieces > 1)} of {room} bytes"


def _frames(args: Args) -> list[tuple[bytes, int]]:
    """(frame, number that the reader expects) in the order in which they are read."""
    from nanoengine.distributed.rpc import HEADER, MAGIC

    room, number, kind, values, fault = args
    whole = payload_of(values)
    starts = list(range(0, len(whole), room)) or [0]

    def frame(start: int, magic: int = MAGIC, number: int = number, longer: int = 0) -> bytes:
        body = whole[start : start + room]
        length = len(body) + longer
        head = HEADER.pack(magic, number, kind, len(whole), start, length)
        return head + body

    last = starts[-1]
    faulty = {
        "magic": [frame(0, magic=MAGIC + 1)],
        "ahead": [frame(0, number=(number + 1) % 2**32)],
        "behind": [frame(0, number=(number - 1) % 2**32)],
        "twice": [frame(0), frame(0)],
        "missed": [frame(0), frame(2 * room)],
        "beyond the message": [*(frame(s) for s in starts[:-1]), frame(last, longer=1)],
        "beyond the buffer": [frame(0, longer=1)],
    }
    frames = faulty[fault] if fault else [frame(start) for start in starts]
    return [(piece, number) for piece in frames]


def observe_read(function: Callable[..., Any], args: Args) -> list[Any]:
    """After every piece {"result", "received" as bytes' values, "changed"}, or {"raised": type}.

    The buffer is written over before the message's values are looked at, as rank 0 does.
    """
    from nanoengine.distributed.rpc import HEADER
    from nanoengine.errors import EngineError

    buffer, received = bytearray([OLD]) * (HEADER.size + args[0]), bytearray()
    seen: list[Any] = []
    for frame, number in _frames(args):
        buffer[: len(frame)] = frame
        before = bytes(buffer)
        try:
            result = function(memoryview(buffer), number, received)
        except EngineError:
            return [*seen, {"raised": "EngineError"}]
        changed = bytes(buffer) != before
        buffer[:] = bytes([OLD]) * len(buffer)
        seen.append({"result": _message(result), "received": list(received), "changed": changed})
    return seen


def _message(result: Any) -> Any:
    """A message as {"kind", "values", "of": the type of its values}."""
    if not (isinstance(result, tuple) and len(result) == 2):
        return plain(result)
    kind, values = result
    named = hasattr(result, "kind") and hasattr(result, "values")
    numbers = [int(v) for v in values] if isinstance(values, list | array | memoryview) else None
    return {
        "kind": plain(kind),
        "values": plain(values) if numbers is None else numbers,
        "of": f"array({values.typecode!r})" if isinstance(values, array) else type(values).__name__,
        "named": named,
    }


def compare_read(case: Case, expected: Any, got: Any) -> Difference | None:
    """Piece by piece: refused or not, what was received, whether a message was given, which."""
    for index, (wanted, given) in enumerate(zip(expected, got, strict=False)):
        name = f"piece {index + 1}" if len(expected) > 1 else "the piece"
        found = _piece(case, name, wanted, given)
        if found:
            return Difference(found)
    last = got[-1].get("result")
    if isinstance(last, dict) and not last["named"]:
        text = "expected Message(kind, values), you gave a plain tuple: others read it by name"
        return Difference(text, binding=False)
    return None


def _piece(case: Case, name: str, wanted: Any, given: Any) -> str | None:
    if "raised" in wanted:
        if "raised" in given:
            return None
        return f"expected EngineError, you gave {_in_words(given['result'])}"
    if "raised" in given:
        return f"{name} is the one that is due, but you raised EngineError"
    if given["changed"]:
        return "your function changed the buffer: other ranks read it, too"
    if given["result"] is not None and wanted["result"] is None:
        return (
            f"after {name} {len(wanted['received'])} of {4 * len(case.args[3])} bytes are here: "
            f"expected None, you gave {_in_words(given['result'])}"
        )
    if wanted["result"] is None:
        return _received(name, wanted["received"], given["received"])
    return _whole(name, wanted, given)


def _received(name: str, wanted: list[int], given: list[int]) -> str | None:
    if given == wanted:
        return None
    if len(given) < len(wanted):
        return (
            f"after {name} `received` should hold {len(wanted)} bytes, it holds {len(given)}: add "
            "the piece to the bytearray itself"
        )
    return f"after {name} `received` should hold {len(wanted)} bytes of payload, it holds others"


def _whole(name: str, wanted: Any, given: Any) -> str | None:
    right, mine = wanted["result"], given["result"]
    if mine is None:
        return f"with {name} the message is complete: expected a Message, you gave None"
    if not isinstance(mine, dict) or "of" not in mine:
        return f"expected Message(kind, values), you gave {_in_words(mine)}"
    if mine["kind"] != right["kind"]:
        return f"the message's kind should be {right['kind']}, it is {show(mine['kind'])}"
    if mine["values"] != right["values"]:
        return (
            f"its values should be {show(right['values'])}, they are {show(mine['values'])} once "
            "rank 0 has written over the buffer"
        )
    if mine["of"] != right["of"]:
        return f"its values should be an {right['of']}, they are a {mine['of']}"
    return None


def _in_words(result: Any) -> str:
    if isinstance(result, dict) and "values" in result:
        return f"a message with values {show(result['values'])}"
    return show(result)
