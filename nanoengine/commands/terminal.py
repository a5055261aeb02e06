"""Plain text for terminals: emphasis where it can be shown, tokens on one line, columns."""

import os
import sys
import unicodedata

WIDTH = 80  # every screen is laid out for this many columns


def styled(text: str, code: str) -> str:
    """`text` in an ANSI style ("1" bold, "2" dim) on a terminal, else as it is.

    Nothing depends on the style alone. NO_COLOR (no-color.org) and TERM=dumb switch it off.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not sys.stdout.isatty():
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def bold(text: str) -> str:
    """`text` in bold on a terminal."""
    return styled(text, "1")


def dim(text: str) -> str:
    """`text` dimmed on a terminal."""
    return styled(text, "2")


def visible(text: str) -> str:
    r"""A token's text on one line: spaces as "_", line breaks as "\n".

    >>> visible(" hello")
    '_hello'
    """
    text = text.replace("\\", "\\\\").replace(" ", "_")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def columns_of(text: str) -> int:
    """Terminal columns that `text` takes: East Asian characters and emoji take two."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    combining = sum(unicodedata.combining(c) > 0 for c in text)
    return len(text) + wide - combining


def right(text: str, width: int) -> str:
    """`text` moved to the right of `width` columns, cut to fit them."""
    while columns_of(text) > width:
        text = text[:-2] + "~"
    return " " * (width - columns_of(text)) + text


def bar(fraction: float, width: int) -> str:
    """A bar of "#" for a part of one; a part above zero shows at least a dot.

    >>> bar(0.5, 10)
    '#####'
    """
    full = round(min(max(fraction, 0.0), 1.0) * width)
    return "#" * full or ("." if fraction > 0 else "")
