"""Reading an error message: does it name a number, in whatever unit?"""

import re
from collections.abc import Mapping
from typing import NamedTuple

# a message may give bytes, binary or decimal units
_UNITS = (1, 1 << 10, 1 << 20, 1 << 30, 10**3, 10**6, 10**9)
_NUMBER = re.compile(r"\d[\d_,]*(?:\.\d+)?")
_COARSE = 0.1  # "2 GiB" is a fair way to say 1.9, but not 1.2


class _Number(NamedTuple):
    value: float
    step: float  # of its last digit


def missing_term(message: str, terms: Mapping[str, float]) -> str | None:
    """The first of `terms` (name -> bytes, or a fraction) that the message does not tell.

    Terms of 0 may be left out. Numbers may be rounded, as "7.30 GiB" for 7475 MiB:

    >>> missing_term("8192 MiB x 0.9 - 7.30 GiB", {"total": 8 << 30, "used": 7475 << 20})
    >>> missing_term("no room", {"total": 8 << 30})
    'total'
    """
    numbers = [_number(digits) for digits in _NUMBER.findall(message)]
    for name, size in terms.items():
        if size and not any(_tells(number, size) for number in numbers):
            return name
    return None


def _number(digits: str) -> _Number:
    text = digits.replace("_", "").replace(",", "")
    return _Number(float(text), 10.0 ** -len(text.partition(".")[2]))


def _tells(number: _Number, size: float) -> bool:
    if size <= 1:  # a fraction, or its percents
        return any(abs(number.value - size * scale) < 1e-6 for scale in (1, 100))
    return any(
        abs(number.value - size / unit) <= min(0.51 * number.step, _COARSE * size / unit)
        for unit in _UNITS
    )
