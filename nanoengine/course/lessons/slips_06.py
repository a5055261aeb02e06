"""Wrong tokens of `sample`, computed from common slips: a message names the one that fits."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from nanoengine.layers.sampler import GREEDY_BELOW

ROUNDING, LARGE, NARROW = "rounding", "large logits", "bfloat16"
BORDERS, FAR_BORDERS = "borders", "borders of a large vocabulary"

_HINTS = {
    ROUNDING: "Rounding can leave the number past the last border; then the last possible "
    "token is meant",
    LARGE: "exp of a large logit overflows: take the row's largest off first, as softmax",
    NARROW: "bfloat16 cannot tell neighbouring borders apart: go on in float32",
    FAR_BORDERS: "all probabilities are equal, and the number is the border before that token",
}


class Row(NamedTuple):
    """One row: its logits [vocab] in float64, temperature and number."""

    logits: torch.Tensor
    temperature: float
    noise: float
    place: int
    slack: float

    @property
    def cold(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def probabilities(self) -> torch.Tensor:
        return (self.logits / self.temperature).softmax(-1)

    def allows(self, token: int) -> bool:
        """Whether a warm row's number falls into this token's part, rounding apart."""
        impossible = not 0 <= token < len(self.logits) or bool(self.logits[token].isneginf())
        if self.cold or impossible or not self.slack:
            return False
        after = float(self.probabilities[: token + 1].sum())
        before = after - float(self.probabilities[token])
        return before - self.slack <= self.noise <= after + self.slack

    def look_up(self, logits: torch.Tensor, noise: float, right: bool = True) -> int:
        """The token that other logits or another number would give."""
        borders = logits.softmax(-1).cumsum(-1)
        return int(torch.searchsorted(borders, torch.tensor(noise).double(), right=right))


def why_wrong(
    check: str,
    row: Row,
    token: int,
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    noise: torch.Tensor,
) -> str:
    """What a wrong token shows."""
    if not 0 <= token < len(row.logits):
        if check == ROUNDING:
            return f"outside of the {len(row.logits)} tokens. {_HINTS[check]}"
        return f"outside of the {len(row.logits)} tokens: is the last border 1 (softmax, cumsum)?"
    if row.cold:
        return _why_cold(row, token, temperatures)
    if row.logits[token].isneginf():
        return "its logit is -inf, so its probability is 0. Mind both ends: number 0.0 and rounding"
    if check in _HINTS:
        return _HINTS[check]
    general = "look the number up in the summed probabilities of softmax(logits / temperature)"
    slips = _slips(row, logits, temperatures, noise)
    return next((words for words, slip in slips if slip == token), general)


def _why_cold(row: Row, token: int, temperatures: torch.Tensor) -> str:
    if row.logits[token] == row.logits.max():
        return "temperature 0 takes the first of equally large logits"
    for other, temperature in enumerate(temperatures.tolist()):
        warm = temperature >= GREEDY_BELOW
        if warm and row.look_up(row.logits / temperature, row.noise) == token:
            return f"that is what the temperature of row {other} gives; each row has its own"
    if token == 0:
        return "temperature 0 takes the largest logit (0 / 0 is NaN, and NaN compares as false)"
    return "temperature 0 takes the largest logit, whatever the noise"


def _slips(
    row: Row, logits: torch.Tensor, temperatures: torch.Tensor, noise: torch.Tensor
) -> Iterator[tuple[str, int]]:
    """(words, the token it would lead to) of common slips, for a warm row."""
    scaled = row.logits / row.temperature
    yield (
        "a number on a border belongs to the token after it",
        row.look_up(scaled, row.noise, False),
    )
    if row.temperature != 1:
        plain = row.look_up(row.logits, row.noise)
        yield "the temperature is missing: softmax(logits / temperature)", plain
        multiplied = row.logits * row.temperature
        yield "divide by the temperature, do not multiply", row.look_up(multiplied, row.noise)
    for other in range(len(noise)):
        if other != row.place:
            token = row.look_up(scaled, float(noise[other]))
            yield f"that is what the noise of row {other} gives", token
            yield (
                f"that is what the temperature of row {other} gives",
                row.look_up(row.logits / max(float(temperatures[other]), GREEDY_BELOW), row.noise),
            )
    whole = logits.double() / torch.where(temperatures < GREEDY_BELOW, 1.0, temperatures)[:, None]
    for words, borders in (
        ("softmax goes over the rows; it should go over the tokens", whole.softmax(0).cumsum(-1)),
        ("cumsum goes over the rows; it should go over the tokens", whole.softmax(-1).cumsum(0)),
    ):
        yield words, min(int((borders[row.place] <= row.noise).sum()), len(row.logits) - 1)
    yield "your look-up runs from the last token to the first", row.look_up(scaled, 1 - row.noise)
    yield "that is the largest logit: a warm row follows its number", int(row.logits.argmax())
