"""Prepare the second phase's text: the teacher's best, what people wrote, our own small talk.

    python -m nanoengine.classroom.refine --cache CACHE --synthetic TEXT.json.gz \\
        --model MODEL --out DATA2
    python -m nanoengine.classroom.train --data DATA2 --init MODEL --out MODEL2

After the first phase the model answers many a small question beside the point: it has learned
its teacher's favorite phrases. So the teacher's text is screened more strictly here, and small
talk written for the project (`smalltalk.py`) is added. The tokenizer stays the model's.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer

from .data import encode, load_documents, save, split
from .parse import Document
from .smalltalk import plain_words, project_documents
from .synthesize import read

# What the teacher says when it has nothing to say, or takes itself for a service.
_STOCK = re.compile(
    r"\bsorry\b|glad you|glad to h|happy to (?:help|chat)|here to|misunderst|assistant|chatty"
    r"|\bAI\b"
    r"|friendly,? (?:and )?(?:cheerful|person)|cheerful|language model|what can i (?:do|help)"
    r"|how can i (?:help|assist)|here for you|great question|good question|i'm not sure"
    r"|creative writ|heart and|all about|year[s-]? ?old|\d",
    re.IGNORECASE,
)
_ECHOING = re.compile(r"\b(.{12,}?)\b.*\b\1\b", re.IGNORECASE | re.DOTALL)
_INSIDE_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_FAMILIAR = frozenset(
    ("Christmas", "English", "Spanish", "French", "Italian", "Saturday", "Sunday", "Monday",
     "Friday", "Easter", "Paris", "Italy", "Japan", "London", "America", "Europe", "Mom", "Dad")
)  # fmt: skip
_STOP = frozenset(
    plain_words(
        "i you a an the is are am was were do does did to of in on and or it that this for with "
        "my your me what how who where when why so really very be been have has had like love "
        "favorite think about would could can should if there any some not no yes at from up out "
        "just"
    )
)
MAX_REPLY_CHARACTERS = 160


def keeps_to_the_point(reply: Document) -> bool:
    """Whether a teacher's reply is worth reading twice.

    Refused: stock phrases, self-descriptions, an echo of itself or of the whole question, names
    of people and places made up inside a sentence, and replies that share no word of meaning
    with a question that has one.
    """
    *_, asked, answer = reply.pieces
    if len(answer) > MAX_REPLY_CHARACTERS or _STOCK.search(answer) or _ECHOING.search(answer):
        return False
    names = set(_INSIDE_NAME.findall(answer)) - _FAMILIAR
    if any(name not in asked for name in names):
        return False
    question, words = (set(plain_words(text)) for text in (asked, answer))
    if plain_words(asked) == plain_words(answer):
        return False
    meaning = {w.rstrip("s") for w in question - _STOP}
    return not meaning or bool(meaning & {w.rstrip("s") for w in words})


def is_told_well(story: Document) -> bool:
    """Whether a teacher's story does not run in circles: few words and phrases come again.

    At most 3 uses of any four words in a row, and at least 45 different words in a hundred.
    """
    words = plain_words(story.pieces[-1])
    fours = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    return bool(fours) and max(fours.values()) <= 3 and len(set(words)) >= 0.45 * len(words)


def screen(documents: Iterable[Document]) -> list[Document]:
    """The documents without the teacher's weaker ones; what people wrote stays whole."""
    tests = {"replies": keeps_to_the_point, "stories": is_told_well}
    return [
        d for d in documents if (source := d.name.split("/")[0]) not in tests or tests[source](d)
    ]


def main() -> None:
    """Command line: gather, screen, add the project's text, split, encode."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the package files")
    parser.add_argument("--synthetic", type=Path, nargs="*", default=[], help="teacher's text")
    parser.add_argument("--model", type=Path, required=True, help="folder of the first phase")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    args = parser.parse_args()
    documents = load_documents(args.cache)
    for path in args.synthetic:
        documents += read(path)
    write(args.out, documents, args.model)


def write(out: Path, documents: list[Document], model: Path) -> None:
    """Write `corpus.npz` and the model's `tokenizer.json` into `out`; prints what was kept."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    training, held_out = split([*documents, *project_documents()])
    training = screen(training)  # held-out text stays whole, so that figures can be compared
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    save(out / "corpus.npz", encode(tokenizer, training), encode(tokenizer, held_out))
    print(json.dumps(Counter(d.name.split("/")[0] for d in training)))


if __name__ == "__main__":
    main()
