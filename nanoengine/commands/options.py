"""Command-line options made from the fields of EngineConfig and SamplingParams.

So a new field is an option at once, with the field's own name, default and description.
"""

import argparse
import dataclasses
import difflib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from nanoengine.config import BACKENDS, DEVICES, DTYPES, LOAD_FORMATS, EngineConfig
from nanoengine.sampling_params import SamplingParams

_CHOICES = {
    "device": DEVICES,
    "load_format": LOAD_FORMATS,
    "dtype": ("auto", *DTYPES),
    "attention_backend": BACKENDS,
}
_SHORT = {"kvcache_block_size": "--block-size"}
_SECOND = re.compile(r"; (\w+): ")
_DESCRIPTION = re.compile(r"(\w+(?:, \w+)*): (.*)")


class Parser(argparse.ArgumentParser):
    """An argument parser that says what was probably meant, in one line, and guesses nothing."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, allow_abbrev=False)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse, refusing what is not known together with its likely spelling."""
        args, extra = self.parse_known_args(argv)
        if extra:
            known = [name for action in self._actions for name in action.option_strings]
            close = difflib.get_close_matches(extra[0].partition("=")[0], known, n=1)
            self.error(f"unknown argument {extra[0]!r}" + (f": {close[0]}?" if close else ""))
        return args

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 after one line on stderr."""
        print(f"{self.prog}: {message} (`{self.prog} --help` lists all)", file=sys.stderr)
        sys.exit(2)


def add_engine_options(parser: Parser) -> None:
    """One option for each field of EngineConfig; only those given reach `engine_options`."""
    _add_fields(parser.add_argument_group("engine"), EngineConfig, {})


def add_sampling_options(parser: Parser, **defaults: Any) -> None:
    """One option for each field of SamplingParams; `defaults` replace the field's own."""
    _add_fields(parser.add_argument_group("sampling"), SamplingParams, defaults)


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options for `LLM(...)` that were given."""
    return _given(args, EngineConfig)


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The request's parameters. Raises RequestError for a value outside its range."""
    return SamplingParams(**_given(args, SamplingParams))


def descriptions(cls: type) -> dict[str, str]:
    """What a class's docstring says of each field, from its lines `name: text` and below."""
    found: dict[str, str] = {}
    current: list[str] = []
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        match = _DESCRIPTION.fullmatch(line)
        if match:
            current = match[1].split(", ")
            found |= dict.fromkeys(current, match[2])
        elif line.startswith(" "):
            found |= {name: f"{found[name]} {line.strip()}" for name in current}
        else:
            current = []
    for name, text in list(found.items()):  # "stop: ...; stop_token_ids: ..." describes two
        first, second, rest = [*_SECOND.split(text, maxsplit=1), "", ""][:3]
        found[name] = first
        if second:
            found[second] = rest
    return found


def _add_fields(group: Any, cls: type, defaults: dict[str, Any]) -> None:
    help_texts = descriptions(cls)
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name = field.name
        flags = ["--" + name.replace("_", "-")] + ([_SHORT[name]] if name in _SHORT else [])
        default = defaults.get(name, field.default)
        shown = "" if default is None else f" (default: {default})"
        options: dict[str, Any] = {
            "dest": name,
            "help": (help_texts.get(name, "") + shown).strip().replace("%", "%%"),
            "default": defaults.get(name, argparse.SUPPRESS),
        }
        group.add_argument(*flags, **options, **_reading(name, hints[name]))


def _reading(name: str, hint: Any) -> dict[str, Any]:
    """How argparse reads a field of this type."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    for kind in (float, int):
        if kind in kinds:
            return {"type": kind, "metavar": "X" if kind is float else "N"}
    if name == "stop":
        return {"action": "append", "metavar": "TEXT"}
    if name == "stop_token_ids":
        return {"type": _integers, "metavar": "N,N"}
    if name in _CHOICES:
        return {"choices": _CHOICES[name]}
    return {"metavar": name.upper()}


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


_integers.__name__ = "list of integers"  # argparse's error message prints it


def _given(args: argparse.Namespace, cls: Callable[..., Any]) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(typing.cast(Any, cls))]
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
