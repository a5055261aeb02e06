"""Text while it is being generated: deltas of whole characters, and stop strings in them."""

import codecs
import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from nanoengine.errors import RequestError
from nanoengine.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Detokenizer(Protocol):
    """What turns one token after the other into text."""

    def push(self, token_id: int) -> str:
        """The text that is certain now that `token_id` has come; often "" inside a character."""

    def flush(self) -> str:
        """What is left at the end: half characters, as U+FFFD. Nothing may be pushed after it."""


class IncrementalDetokenizer:
    """Deltas of text that add up to `tokenizer.decode(ids)`, each token looked at once.

    Decoding every token by itself would break characters that span tokens ("🙂" may be three
    tokens, each an invalid half), and decoding all tokens at every step costs O(n^2). So a
    delta is handed out as soon as it can no longer change, and never a half character.
    Special tokens are left out of the text. One object serves one output: it starts empty, so
    half a character at the end of a prompt stays out of the stream.

    Byte-level tokenizers (Qwen, Llama 3, SmolLM2, GPT-2) and those that decode a token by
    looking at its neighbours (SentencePiece with byte fallback, Metaspace, WordPiece) are exact
    for every sequence of ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers.decoders import ByteLevel

        self._special_ids = tokenizer.special_ids
        byte_level = isinstance(tokenizer.backend.decoder, ByteLevel)
        self._text: Detokenizer = _ByteLevel(tokenizer) if byte_level else _Neighbours(tokenizer)

    def push(self, token_id: int) -> str:
        """The text that is certain now that `token_id` has come; often "" inside a character."""
        return "" if token_id in self._special_ids else self._text.push(token_id)

    def flush(self) -> str:
        """What is left at the end: half characters, as U+FFFD. Nothing may be pushed after it."""
        return self._text.flush()


class _ByteLevel:
    """A byte-level token is a string of bytes, so an incremental UTF-8 decoder is all it takes.

    Python and tokenizers replace invalid bytes alike: one U+FFFD for each longest prefix of a
    character (Unicode standard, section 3.9, "maximal subparts").
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._id_to_token = tokenizer.backend.id_to_token
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        token = self._id_to_token(token_id) or ""
        table = _char_to_byte()
        try:
            data = bytes(table[char] for char in token)
        except KeyError:  # an added token, such as "<think> ", stands for itself
            data = token.encode()
        return self._decoder.decode(data)

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


@cache
def _char_to_byte() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up.

    So a space (byte 32, the 33rd that is not printable) is written "Ġ", U+0120.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


class _Neighbours:
    """Other decoders look from a token to its neighbours: decode a new token beside the last one.

    The last token that was given out stays as an anchor, because a first token may lose its
    leading space. A run of byte tokens ("<0xF0>") waits for its end: if any byte of the run is
    invalid, the decoder replaces all of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend = tokenizer.backend
        self._anchor: list[int] = []
        self._anchor_text = ""
        self._waiting: list[int] = []

    def push(self, token_id: int) -> str:
        token = self._backend.id_to_token(token_id)
        if not token:  # an unknown id is no text, and an empty token would be no anchor
            return ""
        self._waiting.append(token_id)
        if _BYTE_TOKEN.fullmatch(token):
            return ""
        return self._release(anchor=token_id)

    def flush(self) -> str:
        return self._release(anchor=None) if self._waiting else ""

    def _release(self, anchor: int | None) -> str:
        text = self._backend.decode(self._anchor + self._waiting)
        delta = text[len(self._anchor_text) :]
        self._waiting = []
        if anchor is not None:
            self._anchor = [anchor]
            self._anchor_text = self._backend.decode(self._anchor)
        return delta


class StopStrings:
    """Looks for stop strings in a text that comes in pieces, however it is cut.

    The stop string that is complete first ends the text; of two that are complete at the same
    character the longer one counts. Text that may be the beginning of a stop string is held
    back, everything else is handed out at once.

    >>> stops = StopStrings(["END"])
    >>> stops.push("Hello E"), stops.push("N"), stops.push("D!")
    (('Hello ', None), ('', None), ('', 'END'))

    Raises RequestError for a stop string that is empty or not a str.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(isinstance(s, str) and s for s in stops):
            raise RequestError(f"stop must be a list of non-empty strings, got {stops!r}")
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self._found: str | None = None

    def push(self, delta: str) -> tuple[str, str | None]:
        """(text that is safe to hand out, the stop string found or None).

        The stop string is no part of the text. Once one is found, all later text is dropped.
        """
        if self._found is not None:
            return "", self._found
        text = self._held + delta
        starts = {stop: text.find(stop) for stop in self._stops}
        found = [(at + len(stop), at, stop) for stop, at in starts.items() if at >= 0]
        if found:
            _, start, self._found = min(found)
            self._held = ""
            return text[:start], self._found
        kept = self._possible_start(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept], None

    def flush(self) -> str:
        """The text held back, when nothing more will come."""
        text, self._held = self._held, ""
        return text

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
