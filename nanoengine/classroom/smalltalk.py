"""Small talk and little tales written for this project, from patterns with blanks.

`smalltalk.json` holds three things. `lists`: words for the blanks (`food`, `place`, ...).
`dialogues`: by topic, what a user may say and the chains of turns that may follow. `tales`: by
name, the sentences of a story, each with its alternatives. In a text, `[a|b]` stands for one of
the two and `{food}` for a word of that list: the same one wherever it comes back in a document,
`{food2}` for another one, `{Food}` with a capital. A turn `!open` is the tale "open".

The prompts of `prompts.json`, by which the model is judged, are kept out, however they are
capitalized, punctuated or contracted.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .parse import Document

PROJECT_SOURCES = ("smalltalk", "tales")  # the first parts of these documents' names
PER_PATTERN, PER_TALE = 24, 120  # tries for each wording of a user; for each opening of a tale
GREETINGS = ("Hi! ", "Hello! ", "Hey, ", "Hi, ", "Oh, ")
GREETED_SHARE, HASTY_SHARE = 0.06, 0.1
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_BLANK = re.compile(r"\{(\w)([a-z]*)(\d?)\}")
_GREETS = re.compile(r"hi\b|hello|hey|greetings|good\b|morning|evening|bye|see you|oh\b", re.I)
_CONTRACTIONS = {"'m": " am", "'re": " are", "'s": " is", "'ll": " will", "'ve": " have"}


@cache
def patterns() -> dict[str, Any]:
    """The contents of `smalltalk.json`."""
    text = (Path(__file__).parent / "smalltalk.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def plain_words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, contractions written out, punctuation dropped.

    >>> plain_words("What's your NAME?") == plain_words("what is your name")
    True
    """
    text = text.lower()
    for short, full in _CONTRACTIONS.items():
        text = re.sub(rf"{short}\b", full, text)
    return tuple(re.findall(r"[a-z0-9]+", text.replace("'", "")))


@cache
def _prompts() -> tuple[frozenset[tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    text = (Path(__file__).parent / "prompts.json").read_text(encoding="utf-8")
    prompts = json.loads(text)
    chat = frozenset(plain_words(prompt) for prompt in prompts["chat"])
    return chat, tuple(plain_words(prompt) for prompt in prompts["text"])


def repeats_a_prompt(turn: str) -> bool:
    """Whether a turn is one of the judged prompts, or begins with a judged story opening.

    >>> repeats_a_prompt("hello"), repeats_a_prompt("Hello there!")
    (True, False)
    """
    words = plain_words(turn)
    chat, openings = _prompts()
    return words in chat or any(words[: len(opening)] == opening for opening in openings)


class Filler:
    """Fills the blanks of one document; raises KeyError for a list that does not exist."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.words = rng, dict[str, str]()

    def pick(self, options: Any) -> Any:
        """One of the options, each as likely as the others."""
        return options[int(self.rng.integers(len(options)))]

    def fill(self, text: str) -> str:
        """The text with its choices made and its blanks filled."""
        while _CHOICE.search(text):
            text = _CHOICE.sub(lambda m: str(self.pick(m[1].split("|"))), text)
        text = _BLANK.sub(self._word, text)
        text = re.sub(r"\b([Aa]) (?=[aeiou](?!ne\b|ni|se))", r"\1n ", text)
        return re.sub(r" +([.,!?]?)", lambda m: m[1] or " ", text).strip()

    def _word(self, match: re.Match[str]) -> str:
        key = match[1].lower() + match[2]
        name = key + match[3]
        if name not in self.words:
            taken = set(self.words.values())
            free = [word for word in patterns()["lists"][key] if word not in taken]
            self.words[name] = str(self.pick(free))
        word = self.words[name]
        return word[0].upper() + word[1:] if match[1].isupper() else word


def _tale(name: str, filler: Filler, opening: int | None = None) -> str:
    first, *rest = patterns()["tales"][name]
    begun = filler.pick(first) if opening is None else first[opening]
    return " ".join(filler.fill(text) for text in (begun, *(filler.pick(r) for r in rest)))


def _as_typed(line: str, rng: np.random.Generator) -> str:
    """A user's line, at times after a greeting, at times in lower case without its end mark."""
    if rng.random() < GREETED_SHARE and not _GREETS.match(line):
        greeting = GREETINGS[int(rng.integers(len(GREETINGS)))]
        keep = greeting.endswith("! ") or re.match(r"I\b|[A-Z][a-z]+ is my", line)
        line = greeting + (line if keep else line[0].lower() + line[1:])
    return line.lower().rstrip(".!?") if rng.random() < HASTY_SHARE else line


def dialogues(seed: int = 0) -> Iterator[Document]:
    """Short dialogues `smalltalk/TOPIC-WORDING/NUMBER`; some come more than once."""
    for topic, group in patterns()["dialogues"].items():
        for wording, line in enumerate(group["user"]):
            rng = np.random.default_rng([seed, wording, *topic.encode()])
            for number in range(PER_PATTERN):
                filler = Filler(rng)
                turns = [_as_typed(filler.fill(line), rng)]
                for turn in filler.pick(group["reply"]):
                    told = turn.startswith("!")
                    turns.append(_tale(turn[1:], filler) if told else filler.fill(turn))
                name = f"smalltalk/{topic}-{wording}/{number}"
                yield Document(name, "dialogue", tuple(turns))


def tales(seed: int = 0) -> Iterator[Document]:
    """Little tales `tales/NAME-OPENING/NUMBER`; some come more than once."""
    for name, sentences in patterns()["tales"].items():
        for opening in range(len(sentences[0])):
            rng = np.random.default_rng([seed, opening, *name.encode()])
            for number in range(PER_TALE):
                text = _tale(name, Filler(rng), opening)
                yield Document(f"tales/{name}-{opening}/{number}", "prose", (text,))


def project_documents(seed: int = 0) -> list[Document]:
    """Every dialogue and tale once, without those that repeat a judged prompt."""
    seen: set[tuple[str, ...]] = set()
    kept = []
    for document in (*dialogues(seed), *tales(seed)):
        if document.pieces in seen or any(map(repeats_a_prompt, document.pieces)):
            continue
        seen.add(document.pieces)
        kept.append(document)
    return kept
