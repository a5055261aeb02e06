"""The command `nanoengine`: finds the subcommand, and turns expected errors into one line.

A subcommand is a row in COMMANDS and a function `main(argv) -> exit status`. Its module is
imported only when it is called, so `nanoengine --help` does not wait for torch.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

from nanoengine import __version__
from nanoengine.errors import NanoengineError

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_BROKEN_PIPE = 128 + 13  # what a shell reports for SIGPIPE
EXIT_INTERRUPTED = 128 + 2  # and for SIGINT


class Command(NamedTuple):
    """Where a subcommand's function is, "module:function", and one line for the help."""

    target: str
    summary: str


COMMANDS: dict[str, Command] = {
    "tour": Command("nanoengine.commands.tour:main", "watch one prompt go through the engine"),
    "generate": Command("nanoengine.commands.generate:main", "complete one or many prompts"),
    "chat": Command("nanoengine.commands.chat:main", "talk with a model"),
    "bench": Command("nanoengine.bench.run:main", "measure throughput, beside a peer"),
    "figures": Command("nanoengine.viz.gallery.cli:main", "draw the figures of the course again"),
    "lessons": Command("nanoengine.course.cli:main", "sync, grade or release the lessons"),
    "doctor": Command("nanoengine.commands.doctor:main", "what this machine can run, and why"),
    "fetch": Command("nanoengine.fetch:main", "download a real model"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `nanoengine ARGV...`; returns the exit status.

    0: done. 1: an expected error, told in one line on stderr. 2: wrong usage. 130: Ctrl-C.
    """
    _replace_unprintable(sys.stdout, sys.stderr)
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if args else EXIT_USAGE
    if args[0] in ("-V", "--version"):
        print(f"nanoengine {__version__}")
        return 0
    name, rest = args[0], args[1:]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(COMMANDS)}"
        print(f"nanoengine: unknown command {name!r}: {hint}", file=sys.stderr)
        return EXIT_USAGE
    return _guarded(name, rest)


def help_text() -> str:
    """What `nanoengine --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: nanoengine COMMAND ...",
            "",
            "A readable LLM inference engine, and the course that builds it.",
            "",
            *rows,
            "",
            "`nanoengine COMMAND --help` lists its options, `--version` prints the version.",
        ]
    )


def load(name: str) -> Callable[[Sequence[str]], int]:
    """Import a subcommand's function."""
    module, _, function = COMMANDS[name].target.partition(":")
    target: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), function)
    return target


def _guarded(name: str, argv: Sequence[str]) -> int:
    """Call a subcommand; an expected error becomes one line, anything else keeps its traceback."""
    try:
        status = load(name)(argv)
        sys.stdout.flush()
        return status
    except NanoengineError as error:
        print(f"nanoengine {name}: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(f"\nnanoengine {name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `nanoengine tour | head`: whoever read us has seen enough
        with suppress(OSError):  # Python flushes stdout once more at exit: let that go nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _replace_unprintable(*streams: TextIO) -> None:
    """Print a character that the terminal's encoding lacks as an escape, instead of failing."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
