"""What counts as a prompt's token ids: any integers of the vocabulary, given back as plain ones."""

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from nanoengine.engine.token_ids import checked_ids
from nanoengine.errors import RequestError

VOCAB = 1000
LONG = [number % VOCAB for number in range(3 * VOCAB)]


class Special(IntEnum):
    """Ids by name."""

    END = 7


@pytest.mark.parametrize("tokens", [[0], [VOCAB - 1], [5, 0, 999], LONG])
def test_ids_come_back_as_they_are(tokens: list[int]) -> None:
    assert checked_ids(list(tokens), VOCAB) == tokens


def test_no_ids_are_no_error_here() -> None:
    assert checked_ids([], VOCAB) == []


@pytest.mark.parametrize("token", [np.int64(7), np.uint8(7), np.array(7), Special.END], ids=repr)
def test_other_integers_become_plain_ones(token: Any) -> None:
    ids = checked_ids([*LONG, token], VOCAB)
    assert ids == [*LONG, 7]
    assert set(map(type, ids)) == {int}


BAD = [-1, VOCAB, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**64 + 5, -(2**32), -(2**64)]


@pytest.mark.parametrize("token", BAD)
@pytest.mark.parametrize("others", [[], LONG], ids=len)
def test_an_id_outside_the_vocabulary_is_named(token: int, others: list[int]) -> None:
    """Also one that would be an id if it were cut to 32 bits."""
    with pytest.raises(RequestError, match=f"holds token {token}: ids of this model are 0..999"):
        checked_ids([*others, token, *others], VOCAB)


NO_IDS = [True, False, 1.0, np.float32(1), np.bool_(True), "1", b"1", None, [1]]


@pytest.mark.parametrize("token", NO_IDS, ids=repr)
@pytest.mark.parametrize("others", [[], LONG], ids=len)
def test_what_is_no_integer_is_refused(token: Any, others: list[int]) -> None:
    with pytest.raises(RequestError, match="give integer token ids"):
        checked_ids([*others, token, *others], VOCAB)
