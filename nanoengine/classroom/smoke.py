"""Made-up conversations for a training run of seconds: a check of the script, not a language."""

from itertools import product

from .parse import Document

_NAMES = ("Ana", "Ben", "Chen", "Dina")
_THINGS = ("apples", "bread", "cheese", "dates", "eggs", "figs")
_PLACES = ("at home", "in the park", "at school", "by the sea", "on the train")


def made_up_documents() -> list[Document]:
    """120 conversations of four turns and 4 tiny stories; always the same."""
    documents = []
    for number, (name, thing, place) in enumerate(product(_NAMES, _THINGS, _PLACES)):
        turns = (
            f"Hello, I am {name}. What do you like to eat?",
            f"Hello, {name}. I like {thing}.",
            f"Where do you eat {thing}?",
            f"I eat {thing} {place}, {name}.",
        )
        documents.append(Document(f"chitchat/smoke{number}", "dialogue", turns))
    for name in _NAMES:
        story = " ".join(f"Then {name} ate {thing} {place}." for thing, place in _pairs())
        documents.append(Document(f"story/{name}", "prose", (f"Once there was {name}. {story}",)))
    return documents


def _pairs() -> list[tuple[str, str]]:
    return list(product(_THINGS, _PLACES))
