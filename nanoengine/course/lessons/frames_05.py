"""Lesson 05's contract for writing messages: what stands in the buffer, piece by piece."""

import random
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, MutatedArgument, plain, show

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]
RANDOM_CASES = 30
OLD = 0xAB  # what the buffer holds before
_FIELDS = ("MAGIC", "the message's number", "the kind", "the bytes of the whole payload",
           "where the piece starts", "the bytes of the piece")  # fmt: skip
_TOO_SMALL = "a buffer too small for anything"


def payload_of(values: list[int]) -> bytes:
    """Values as the bytes of an int32 array."""
    return array("i", values).tobytes()


def write_cases() -> list[Case]:
    """(room behind the header, number, kind, values, start or None: the whole message)."""
    hand: list[tuple[str, Args]] = [
        ("one piece", (32, 0, 1, [5, 6, 7], None)),
        ("one value", (32, 7, 1, [-1], None)),
        ("a message of no values", (16, 3, 0, [], None)),
        ("numbers and kinds", (32, 4_000_000_000, 6, [1, 2], None)),
        ("exactly full", (12, 2, 1, [5, 6, 7], None)),
        ("the first piece", (8, 0, 1, [5, 6, 7], 0)),
        ("the second piece", (8, 0, 1, [5, 6, 7], 8)),
        ("two pieces", (8, 4, 1, [5, 6, 7], None)),
        ("many pieces", (4, 9, 2, [10, -20, 30, -40, 50], None)),
        ("full pieces", (8, 1, 1, [1, 2, 3, 4], None)),
        ("longer than a large buffer", (1000, 8, 1, list(range(700)), None)),
        ("a room of odd size", (7, 5, 1, [1, 2, 3], None)),
        (_TOO_SMALL, (3, 0, 1, [5], None)),
        (_TOO_SMALL, (0, 0, 1, [5], None)),
    ]
    rng = random.Random(506)
    for _ in range(RANDOM_CASES):
        values = [rng.randint(-(2**31), 2**31 - 1) for _ in range(rng.randint(0, 20))]
        args = (4 * rng.randint(1, 12), rng.randrange(2**32), rng.randint(1, 9), values, None)
        hand.append(("random messages", args))
    return [Case(check, _write_situation(args), args) for check, args in hand]


def _write_situation(args: Args) -> str:
    room, _, _, values, start = args
    shown = show(values) if len(values) < 8 else f"{len(values)} values"
    at = "" if start is None else f", from byte {start} on"
    return f"{shown} ({4 * len(values)} bytes) into a buffer with room for {room}{at}"


def observe_write(function: Callable[..., Any], args: Args) -> Any:
    """Every piece: {"returned", "header", "body" as bytes' values}; or {"raised": type}.

    Written until the function says that the last piece is in the buffer, or makes no progress.
    """
    from nanoengine.distributed.rpc import HEADER
    from nanoengine.errors import EngineError

    room, number, kind, values, start = args
    buffer = memoryview(bytearray([OLD]) * (HEADER.size + room))
    whole = payload_of(values)
    payload, at, pieces = memoryview(bytearray(whole)), start or 0, []
    for _ in range(len(values) + 2):
        try:
            returned = plain(function(buffer, number, kind, payload, at))
        except EngineError:
            return {"raised": "EngineError"}
        if bytes(payload) != whole:
            raise MutatedArgument("argument 4, payload")
        header = list(HEADER.unpack_from(buffer))
        body = list(buffer[HEADER.size : HEADER.size + header[-1]])
        pieces.append({"returned": returned, "header": header, "body": body})
        if start is not None or type(returned) is not int or not at < returned < len(whole):
            break
        at = returned
    return pieces


def compare_write(case: Case, expected: Any, got: Any) -> Difference | None:
    """Piece by piece: header, body, and what was returned; smaller pieces are only remarked."""
    room, number, kind, values, start = case.args
    if isinstance(expected, dict) or isinstance(got, dict):
        return _refusal(room, expected, got)
    whole, at = payload_of(values), start or 0
    for index, piece in enumerate(got):
        name = f"piece {index + 1}" if len(expected) > 1 else "the piece"
        header, returned = piece["header"], piece["returned"]
        length = header[-1]
        due = min(room, len(whole) - at)
        right = [expected[0]["header"][0], number, kind, len(whole), at, due]
        if 0 < length <= due and type(returned) is int and returned == at + length:
            right[-1] = length  # a smaller piece is a piece
        wrong = next((i for i in range(len(right)) if header[i] != right[i]), None)
        if wrong is not None:
            return _field(name, wrong, right[wrong], header[wrong])
        if piece["body"] != list(whole[at : at + length]):
            return Difference(_body(name, whole, at, piece["body"]))
        if returned != at + length or type(returned) is not int:
            return _returned(name, at + length, returned, length)
        at = returned
    if start is None and at != len(whole):
        return Difference(f"the message is over after {at} of its {len(whole)} bytes")
    if len(got) > len(expected) or got[-1]["header"][-1] < expected[-1]["header"][-1]:
        return Difference(
            f"{len(got)} pieces where {len(expected)} are enough: fill the room", binding=False
        )
    return None


def _refusal(room: int, expected: Any, got: Any) -> Difference | None:
    if isinstance(expected, dict) and isinstance(got, dict):
        return None
    if isinstance(got, dict):
        return Difference(f"there is room for {room} bytes, but you raised EngineError")
    return Difference(
        "expected EngineError, you raised nothing: no int32 fits, the message would never end"
    )


def _field(name: str, index: int, right: int, given: int) -> Difference:
    old = int.from_bytes(bytes([OLD] * 4), "little", signed=index == 2)
    what = f"{name}: {_FIELDS[index]} in the header should be {right}"
    if given == old:
        return Difference(f"{what}, nothing was written there: HEADER.pack_into(buffer, 0, ...)")
    return Difference(f"{what}, it is {given}; its six numbers are MAGIC, number, kind, total, "
                      "start, length")  # fmt: skip


def _body(name: str, whole: bytes, at: int, body: list[int]) -> str:
    first = next((i for i, b in enumerate(body) if at + i >= len(whole) or b != whole[at + i]), 0)
    found = "what was there before" if body and body[first] == OLD else f"byte {body[first:][:1]}"
    if at and body == list(whole[: len(body)]):
        return f"{name} holds the payload's beginning again: it goes on from byte {at}"
    return f"{name}: behind the header should follow the payload's byte {at + first}, it is {found}"


def _returned(name: str, right: int, given: Any, length: int) -> Difference:
    if given is None:
        return Difference(f"{name}: you returned None: is a `return` missing?")
    why = ": that is the piece's length" if given == length else ""
    return Difference(
        f"after {name} you should return {right}, where the next piece starts; you returned "
        f"{show(given)}{why}"
    )


def draw_write(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The frames that should stand in the buffer one after the other, and those that did."""
    from nanoengine.viz.frames import frame_layout

    if isinstance(expected, dict) or isinstance(got, dict):
        return None
    return frame_layout(expected, room=args[0], got=got)
