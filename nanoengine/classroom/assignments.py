"""What the teacher model is asked to write: short stories, and replies to everyday lines.

Requests are drawn from fixed lists with a seed, so they are always the same. The lines to
reply to come from conversations of the training part only: nothing of a held-out conversation
may reach the training text, not even through the teacher.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from .parse import Document

STORYTELLER = (
    "You write short, simple stories for small children. You use easy words and short sentences."
)
FRIEND = (
    "You are a friendly, cheerful person chatting with a friend. "
    "Reply in one or two short, simple sentences."
)


@dataclass(frozen=True)
class Request:
    """One text to be written by the teacher.

    It sees `system` and `turns` (the user's first) and goes on from `opening`. The document
    kept from it is the story alone ("prose"), or `kept_turns` and the reply ("dialogue").
    """

    name: str
    kind: Literal["dialogue", "prose"]
    system: str
    turns: tuple[str, ...]
    kept_turns: tuple[str, ...]
    opening: str
    max_tokens: int


_ADJECTIVES = (
    "little",
    "brave",
    "shy",
    "curious",
    "kind",
    "clever",
    "hungry",
    "sleepy",
    "lonely",
    "funny",
    "lost",
    "young",
    "old",
    "gentle",
)
_BEINGS = (
    "fox",
    "rabbit",
    "bear",
    "mouse",
    "owl",
    "cat",
    "dog",
    "duck",
    "frog",
    "turtle",
    "squirrel",
    "hedgehog",
    "horse",
    "goat",
    "sparrow",
    "penguin",
    "elephant",
    "lion",
    "monkey",
    "bee",
    "boy",
    "girl",
    "farmer",
    "fisherman",
    "baker",
    "king",
    "queen",
    "princess",
    "sailor",
    "teacher",
    "gardener",
    "painter",
    "robot",
    "dragon",
    "giant",
    "wizard",
    "knight",
    "tailor",
    "miller",
)
_NAMES = (
    "Mia",
    "Tom",
    "Anna",
    "Leo",
    "Sara",
    "Ben",
    "Lily",
    "Omar",
    "Nina",
    "Max",
    "Lucy",
    "Sam",
    "Emma",
    "Jack",
    "Aisha",
    "Peter",
    "Rosa",
    "Ivan",
    "Maya",
    "Felix",
    "Ruth",
    "Hugo",
    "Clara",
    "Daniel",
)
_DEEDS = (
    "lost a red kite", "found a golden key", "wanted to bake bread", "was afraid of the dark",
    "made a new friend", "planted a tiny seed", "built a wooden boat", "got lost in the forest",
    "helped an old neighbor", "could not sleep", "wanted to see the sea", "found a hidden door",
    "shared a warm soup", "learned to swim", "told a lie and was sorry", "saved a small bird",
    "waited for the first snow", "followed a strange sound", "wanted to touch the moon",
    "broke a blue cup", "wrote a letter to a friend", "lost a favorite hat", "sang in the rain",
    "climbed the highest hill", "gave away the last apple", "met a talking tree",
    "wanted to be stronger", "had a very bad day", "made a big mistake", "won a small race",
    "forgot an important birthday", "painted a picture", "fixed a broken clock",
    "crossed the old bridge", "found a map", "wanted to learn to read", "moved to a new house",
    "looked after a baby animal", "got caught in a storm", "had a secret garden",
)  # fmt: skip
_OPENINGS = (
    "Once upon a time, there was {hero}", "Once upon a time, {hero}", "One sunny morning, {hero}",
    "Long ago, in a small village, there lived {hero}", "One cold night, {hero}",
    "In a house by the sea, there lived {hero}", "There once was {hero}", "One day, {hero}",
    "It was a rainy day, and {hero}", "Every evening, {hero}", "At the edge of the forest, {hero}",
)  # fmt: skip

_TOPICS = (
    "food", "color", "animal", "movie", "book", "song", "season", "sport", "fruit", "game",
    "holiday", "place", "drink", "dessert", "subject at school", "day of the week", "flower",
    "kind of weather", "hobby", "breakfast", "vegetable", "city", "toy", "story",
)  # fmt: skip
_LIKES = (
    "dogs", "cats", "music", "dancing", "cooking", "reading", "the rain", "the snow", "pizza",
    "chocolate", "coffee", "tea", "swimming", "hiking", "painting", "singing", "board games",
    "video games", "the beach", "the mountains", "school", "gardening", "old movies", "horses",
    "soccer", "running", "traveling", "birds", "ice cream", "early mornings", "trains", "art",
)  # fmt: skip
_LINES = (
    "Hello!", "Hi!", "Hey!", "Hi there!", "Good morning!", "Good evening!", "Hey, what's up?",
    "How are you?", "How are you today?", "How is your day going?", "Nice to meet you!",
    "What's your name?", "Who are you?", "Where are you from?", "Where do you live?",
    "How old are you?", "What are you doing?", "What do you do for a living?", "Tell me a joke.",
    "What do you do in your free time?", "What are your hobbies?", "Do you have a pet?",
    "Do you have any brothers or sisters?", "What are your plans for today?", "I'm bored.",
    "What are you doing this weekend?", "How was your weekend?", "I'm so hungry.", "I feel sad.",
    "I had a great day today.", "I had a bad day.", "I can't sleep.", "I'm so excited!",
    "I got a new puppy.", "I have a test tomorrow.", "I passed my exam!", "I lost my keys.",
    "It's so hot today.", "It's snowing outside.", "I love this weather.", "I'm going to bed.",
    "What should I eat for breakfast?", "What should I wear today?", "Can you help me?",
    "What is a good way to relax?", "How can I make new friends?", "What makes you happy?",
    "What makes you laugh?", "What do you want to learn?", "Thank you!", "Thanks a lot.",
    "See you later!", "Goodbye!", "Have a nice day!", "Good night!", "I miss my family.",
    "I'm learning to cook.", "I want to learn the piano.", "My sister is visiting tomorrow.",
    "Do you want to go for a walk?", "What time do you get up?", "Can you keep a secret?",
)  # fmt: skip


# A question to the other person, or a line about oneself: it can be answered without context.
_ANSWERABLE = re.compile(
    r"\byour?\b.*\?$|^I(?:'m| am| like| love| have| went| want| need| was| got| think)\b"
)


def small_questions() -> list[str]:
    """Everyday questions and lines made from lists."""
    questions = [f"What is your favorite {topic}?" for topic in _TOPICS]
    questions += [f"What's your favorite {topic} and why?" for topic in _TOPICS]
    questions += [f"Do you like {thing}?" for thing in _LIKES]
    questions += [f"I really like {thing}." for thing in _LIKES]
    questions += [f"What do you think about {thing}?" for thing in _LIKES]
    return [*_LINES, *questions]


def story_requests(seed: int = 0) -> Iterator[Request]:
    """Stories without end, most as plain text and every fifth as the answer to a request."""
    heroes = [
        f"{'an' if a[0] in 'aeiou' else 'a'} {a} {b}" for a, b in product(_ADJECTIVES, _BEINGS)
    ]
    heroes += [f"a {who} named {name}" for who, name in product(("boy", "girl", "child"), _NAMES)]
    rng, number = np.random.default_rng(seed), 0
    while True:
        hero, deed, opening = (x[rng.integers(len(x))] for x in (heroes, _DEEDS, _OPENINGS))
        asked = (f"Write a very short story about {hero} who {deed}.",)
        told = (f"Tell me a story about {hero}.",) if number % 5 == 0 else ()
        kind: Literal["dialogue", "prose"] = "dialogue" if told else "prose"
        begun = opening.format(hero=hero)
        yield Request(f"stories/{number}", kind, STORYTELLER, asked, told, begun, 230)
        number += 1


def reply_requests(training: list[Document], copies: int = 60, seed: int = 0) -> list[Request]:
    """Replies to small questions (several each) and to turns of the training conversations.

    Two in five of the latter show the teacher the two turns before.
    """
    rng = np.random.default_rng(seed)
    requests = [
        _reply(f"replies/q{i}/{copy}", (question,))
        for i, question in enumerate(small_questions())
        for copy in range(copies)
    ]
    for document in training:
        if not document.name.startswith("chitchat/"):
            continue
        for k, turn in enumerate(document.pieces):
            if not 12 <= len(turn) <= 110 or not _ANSWERABLE.search(turn):
                continue
            context = document.pieces[max(k - 2, 0) : k] if rng.random() < 0.4 else ()
            turns = (*context, turn) if len(context) == 2 else (turn,)
            requests.append(_reply(f"replies/{document.name.replace('/', '-')}-{k}", turns))
    return [requests[i] for i in rng.permutation(len(requests))]


def _reply(name: str, turns: tuple[str, ...]) -> Request:
    return Request(name, "dialogue", FRIEND, turns, turns, "", 48)
