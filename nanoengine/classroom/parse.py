"""Turn each package's own format into documents: conversations (turns) and prose (chapters)."""

import html
import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Literal

from .clean import tidy, why_unwanted


@dataclass(frozen=True)
class Document:
    """One unit of text: `pieces` are the turns of a conversation (the user's first) or a chapter.

    The first two parts of the name, `chitchat/ID` or `austen/BOOK`, say where it was cut from.
    """

    name: str
    kind: Literal["dialogue", "prose"]
    pieces: tuple[str, ...]


Members = dict[str, bytes]
MIN_TURNS, MAX_TURN_CHARACTERS, MAX_UNWANTED_TURNS = 2, 600, 2
_WHOLE_CONVERSATION = ("email", "phone")


def conversations(name: str, turns: list[list[str]]) -> list[Document]:
    """A conversation, tidied, as the runs of turns that are left when bad turns are cut out.

    `turns` alternate between two people, each a list of messages sent in a row. A turn is bad
    when it is unwanted (`clean.why_unwanted`), unreadable, overlong or said before. One e-mail
    address or telephone number, or more than 2 unwanted turns, and the whole conversation goes.
    """
    reasons = [why_unwanted("\n".join(turn)) for turn in turns]
    unwanted = [reason for reason in reasons if reason]
    if len(unwanted) > MAX_UNWANTED_TURNS or any(r in _WHOLE_CONVERSATION for r in unwanted):
        return []
    runs: list[list[str]] = [[]]
    said: set[str] = set()
    for turn, reason in zip(turns, reasons, strict=True):
        text = " ".join(filter(None, map(tidy, turn)))
        if reason or not text or len(text) > MAX_TURN_CHARACTERS or text in said:
            runs.append([])
            continue
        if len(text) > 20:  # "Yeah." may come twice
            said.add(text)
        runs[-1].append(text)
    runs = [run for run in runs if len(run) >= MIN_TURNS]
    return [Document(f"{name}/{i}", "dialogue", tuple(run)) for i, run in enumerate(runs)]


def parse_chitchat(members: Members) -> list[Document]:
    """Conversations of chitchat-dataset; sender ids and times are not read at all."""
    (raw,) = members.values()
    documents = []
    for key, entry in sorted(json.loads(raw).items()):
        turns = [[message["text"] for message in turn] for turn in entry["messages"]]
        documents += conversations(f"chitchat/{key}", turns)
    return documents


_REAL_DIALOGUES = ("conversations", "greetings", "food")


def parse_chatterbot(members: Members) -> list[Document]:
    """Conversations of chatterbot-corpus: real ones, or a question with alternative answers."""
    import yaml

    documents = []
    for member, raw in members.items():
        topic = member.rsplit("/", 1)[1].removesuffix(".yml")
        for number, lines in enumerate(yaml.safe_load(raw)["conversations"]):
            texts = [str(line) for line in lines if line is not None]
            dialogues = [texts] if topic in _REAL_DIALOGUES else [[texts[0], a] for a in texts[1:]]
            for variant, dialogue in enumerate(dialogues):
                name = f"chatterbot/{topic}/{number}/{variant}"
                documents += conversations(name, [[text] for text in dialogue])
    return documents


def parse_recipes(members: Members) -> list[Document]:
    """Each recipe as a question and an answer; recipes with markup left in them are dropped."""
    (raw,) = members.values()
    documents = []
    for key, recipe in sorted(json.loads(raw).items()):
        ingredients, steps = recipe["ingredients"], recipe["steps"]
        if not (2 <= len(ingredients) <= 15 and 2 <= len(steps) <= 12):
            continue
        needs = ", ".join(item.strip(" .,;").lower() for item in ingredients)
        answer = f"You need {needs}.\n" + "\n".join(f"{i}. {s}" for i, s in enumerate(steps, 1))
        answer = re.sub(r"<ref.*?</ref>|<[^>]*>", "", html.unescape(answer), flags=re.DOTALL)
        if re.search(r"[{}\[\]|=<>*]|https?:", answer) or len(answer) > 2500:
            continue
        title = re.sub(r"\s*\(.*?\)", "", recipe["title"]).strip()
        question = f"How do I make {title}?"
        documents.append(Document(f"recipes/{key}", "dialogue", (question, answer)))
    return documents


def r_strings(data: bytes) -> list[str]:
    """The character vector in one serialized R object (XDR, format 3)."""
    offset = 2 + 3 * 4  # "X\n", then format and two R versions
    (native,) = struct.unpack_from(">i", data, offset)
    offset += 4 + native  # the name of the native encoding
    flags, count = struct.unpack_from(">ii", data, offset)
    if flags & 0xFF != 16:
        raise ValueError(f"R object of type {flags & 0xFF}: only character vectors (16) are read")
    offset += 8
    strings = []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, offset + 4)
        offset += 8
        strings.append(data[offset : offset + max(length, 0)].decode("utf-8", "replace"))
        offset += max(length, 0)
    return strings


def parse_austen(members: Members) -> list[Document]:
    """Chapters of the six novels, paragraphs joined to lines, without headings."""
    (raw,) = members.values()
    documents, offset, book = [], 0, 0
    while offset < len(raw):
        stream = zlib.decompressobj()  # each chunk: 4 bytes of length, then a zlib stream
        lines = r_strings(stream.decompress(raw[offset + 4 :]))
        offset = len(raw) - len(stream.unused_data)
        chapters = re.split(r"\n\s*chapter\s+[\divxlc]+\.?[^\n]*\n", "\n".join(lines), flags=re.I)
        for number, chapter in enumerate(chapters[1:], 1):
            text = re.sub(r"(?m)^\s*(?:volume|the end|finis).*$", "", chapter, flags=re.I)
            text = text.replace("_", "").replace("--", " - ")
            name = f"austen/{book}/{number}"
            documents.append(Document(name, "prose", (join_paragraphs(text),)))
        book += 1
    return documents


def join_paragraphs(text: str) -> str:
    """Paragraphs (blank lines between them) as one line each, one newline apart."""
    paragraphs = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
    return "\n".join(p for p in paragraphs if p).translate(_QUOTES)


_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": " - ", "–": "-"})
# Books that tell a story; lists, laws and prophecy teach a small model little.
_BOOKS = frozenset(
    [
        "Gen",
        "Exod",
        "Ruth",
        "1Sam",
        "2Sam",
        "1Kgs",
        "Esth",
        "Jonah",
        "Tob",
        "Matt",
        "Mark",
        "Luke",
        "John",
        "Acts",
        "Prov",
        "Eccl",
    ]
)


def parse_web(members: Members) -> list[Document]:
    """Chapters of the narrative books of the World English Bible, without notes and titles.

    A SWORD module: records of (offset, size, unpacked size), little-endian, into zlib streams
    of OSIS XML.
    """
    chapters: dict[str, str] = {}
    for testament in ("ot", "nt"):
        index = next(raw for name, raw in members.items() if name.endswith(f"{testament}.bzs"))
        blocks = next(raw for name, raw in members.items() if name.endswith(f"{testament}.bzz"))
        for offset, size, _ in struct.iter_unpack("<III", index):
            xml = zlib.decompress(blocks[offset : offset + size]).decode("utf-8", "replace")
            marks = re.split(r'<chapter [^>]*sID="([^"]+)"/>', xml)
            chapters.update(zip(marks[1::2], marks[2::2], strict=True))
    return [
        Document(f"web/{name}", "prose", (_osis_text(xml),))
        for name, xml in sorted(chapters.items())
        if name.split(".")[0] in _BOOKS
    ]


def _osis_text(xml: str) -> str:
    xml = re.split(r"<chapter eID", xml)[0]
    xml = re.sub(r"<(note|title)\b.*?</\1>", "", xml, flags=re.DOTALL)
    xml = re.sub(r'<div sID="[^"]*" type="x-p"/>', "\n\n", xml)
    return join_paragraphs(html.unescape(re.sub(r"<[^>]+>", "", xml)))


PARSERS: dict[str, Any] = {
    "chitchat": parse_chitchat,
    "chatterbot": parse_chatterbot,
    "recipes": parse_recipes,
    "austen": parse_austen,
    "web": parse_web,
}
