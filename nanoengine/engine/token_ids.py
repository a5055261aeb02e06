"""Token ids as a user may give them, to plain integers of the model's vocabulary."""

import operator
from array import array
from typing import Any

import numpy as np

from nanoengine.errors import RequestError


def checked_ids(tokens: list[Any], vocab_size: int) -> list[int]:
    """A prompt's ids. Raises RequestError for what is no id of this model."""
    # Plain ints in range, the usual case, are seen at once: a loop over the 16,384 tokens of a
    # full prefill step takes longer than a tenth of the step on a fast GPU.
    plain = tokens and list(map(type, tokens)).count(int) == len(tokens)
    if plain and _in_range(tokens, vocab_size):
        return tokens
    return [checked_id(token, vocab_size, "prompt") for token in tokens]


def _in_range(tokens: list[int], vocab_size: int) -> bool:
    """Whether all of these integers are ids; numpy takes less than half of min's and max's time."""
    try:
        values = array("I", tokens)  # unsigned: refuses negative ones
    except OverflowError:
        return False
    return bool(np.frombuffer(values, "I").max() < vocab_size)


def checked_id(token: object, vocab_size: int, where: str) -> int:
    """One id, which `where` holds. Raises RequestError for what is no id of this model."""
    try:
        if isinstance(token, bool):
            raise TypeError
        value = operator.index(token)  # type: ignore[arg-type]  # refuses floats and strings
    except TypeError:
        raise RequestError(f"{where} holds {token!r}: give integer token ids") from None
    if not 0 <= value < vocab_size:
        raise RequestError(
            f"{where} holds token {value}: ids of this model are 0..{vocab_size - 1}"
        )
    return value
