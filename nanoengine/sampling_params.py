"""How one request wants its tokens chosen, and when it stops."""

import math
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, Self

from nanoengine.config import unknown_option
from nanoengine.errors import RequestError

_LARGEST = 3.4e38  # of float32, in which tokens are sampled


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling and stopping for one request; names and defaults are vLLM's.

    temperature: 0 picks the most likely token; 1 samples from the model's own distribution.
    top_k: keep the k most likely tokens (0 or -1: all).
    top_p: keep the smallest set of most likely tokens whose probability reaches top_p.
    min_p: drop tokens less likely than min_p times the most likely one.
    max_tokens, min_tokens: how many new tokens at most; no stop before min_tokens.
    stop: text at which to stop (left out of the output); stop_token_ids: tokens likewise.
    ignore_eos: go on after the model's end-of-text token.
    seed: the same seed gives the same tokens, whatever else runs; None draws a fresh one.

    Raises RequestError for a value outside its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: str | SequenceOf[str] | None = None
    stop_token_ids: SequenceOf[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None

    def __new__(cls, **options: Any) -> Self:
        """Refuse an unknown parameter, with its likely spelling."""
        known = list(cls.__dataclass_fields__)
        for name in options:
            if name not in known:
                raise RequestError(unknown_option(name, options[name], known))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, math.inf, "use 0 for greedy decoding")
        _check_number("top_p", self.top_p, 0.0, 1.0, "use 1 to keep every token", open_low=True)
        _check_number("min_p", self.min_p, 0.0, 1.0, "use 0 to keep every token")
        _check_int("top_k", self.top_k, -1, "use 0 to keep every token")
        _check_int("max_tokens", self.max_tokens, 1, "ask for at least one token")
        _check_int("min_tokens", self.min_tokens, 0, "use 0 for no minimum")
        if self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}: "
                "raise max_tokens or lower min_tokens"
            )
        if not isinstance(self.ignore_eos, bool):
            raise RequestError(f"ignore_eos={self.ignore_eos!r} is not a bool: use True or False")
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), "use any 64-bit integer, or None")
            if self.seed >= 2**64:
                raise RequestError(f"seed={self.seed} does not fit 64 bits: use a smaller integer")
        for name in ("stop", "stop_token_ids"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Iterable):
                raise RequestError(f"{name}={value!r} is not a list: put it in one")
        for text in self.stop_list:
            if not isinstance(text, str) or not text:
                raise RequestError(f"stop={self.stop!r} holds {text!r}: use non-empty strings")
        for token in self.stop_token_ids or ():
            _check_int("stop_token_ids", token, 0, "use token ids of the model's vocabulary")

    @property
    def stop_list(self) -> list[str]:
        """`stop` as a list of strings, also when one string or None was given."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)


def _check_int(name: str, value: object, low: int, remedy: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{name}={value!r} is not an integer: {remedy}")
    if value < low:
        raise RequestError(f"{name}={value} is below {low}: {remedy}")


def _check_number(
    name: str, value: object, low: float, high: float, remedy: str, open_low: bool = False
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise RequestError(f"{name}={value!r} is not a finite number: {remedy}")
    if value < low or value > high or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise RequestError(f"{name}={value} is outside {bracket}{low}, {high}]: {remedy}")
