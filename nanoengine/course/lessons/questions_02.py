"""Lesson 02's questions: what the scope costs, what it rests on, and who reads what."""

import random
from typing import Any

from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion
from nanoengine.engine import inputs

_SIZE = 4


def _draw_decode(rng: random.Random) -> dict[str, Any]:
    length = rng.randint(5, 11)
    return {"length": length, "blocks": rng.sample(range(1, 12), -(-length // _SIZE))}


def _read_slots(drawn: dict[str, Any]) -> list[int]:
    return inputs.slot_mapping(drawn["blocks"], 0, drawn["length"], _SIZE)


def _why_read(drawn: dict[str, Any], given: Any) -> str:
    right = _read_slots(drawn)
    if given == right[:-1]:
        return "the new token is written before attention reads: context_lens counts it."
    if isinstance(given, list) and len(given) == len(drawn["blocks"]) * _SIZE:
        return "context_lens ends the reading inside the last block; the rest may be anything."
    if isinstance(given, list) and len(given) == 1:
        return "that is where the new token is written; attention reads the whole sequence."
    return "one slot for each position from 0 on, by the block table, context_lens of them."


def _draw_chunk(rng: random.Random) -> dict[str, Any]:
    cached, new = rng.randint(3, 9), rng.randint(3, 6)
    return {"cached": cached, "new": new, "query": rng.randint(1, new - 2)}


def _why_keys(drawn: dict[str, Any], given: Any) -> str:
    if given == drawn["cached"] + drawn["new"]:
        return "later tokens of the chunk come after this query: it must not see them."
    if given == drawn["query"] + 1:
        return "the cached tokens come before it and are seen, too."
    if given == drawn["cached"] + drawn["query"]:
        return "a token sees itself."
    return "count: all cached tokens, this chunk's earlier ones, and itself."


def _draw_damage(rng: random.Random) -> dict[str, Any]:
    return {"blocks": rng.randint(3, 20), "size": rng.choice((4, 8, 16))}


def _why_damage(drawn: dict[str, Any], given: Any) -> str:
    if given == -1:
        return "slots are counted from 0: which one does torch take for -1?"
    if given == drawn["blocks"] - 1:
        return "that is the last block; a slot is one place in it."
    if given == drawn["blocks"] * drawn["size"]:
        return "that is the number of slots; the last one has a smaller number."
    return "torch counts -1 from the end of the rows of slots."


QUESTIONS = (
    ValueQuestion(
        id="02.q.minus_one",
        draw=_draw_damage,
        text=lambda d: (
            f"A KV cache has {d['blocks']} blocks of {d['size']}. Someone writes "
            "cache.flatten(0, 1)[slot_mapping] = k, and a padded row has slot -1. Which slot is "
            "overwritten (a number)?"
        ),
        answer=lambda d: d["blocks"] * d["size"] - 1,
        explain=_why_damage,
        where="section 4, Writing",
    ),
    ValueQuestion(
        id="02.q.reads",
        draw=_draw_decode,
        text=lambda d: (
            f"Decode: context_lens {d['length']}, block table {d['blocks']}, block "
            f"size {_SIZE}. Which slots does attention read for this sequence (a list, in order of "
            "the positions)?"
        ),
        answer=_read_slots,
        explain=_why_read,
        where="section 5, Reading",
    ),
    ValueQuestion(
        id="02.q.keys",
        draw=_draw_chunk,
        text=lambda d: (
            f"A prefill chunk computes {d['new']} tokens of a sequence with "
            f"{d['cached']} cached ones. How many keys does query {d['query']} of the chunk see "
            "(counted from 0; a number)?"
        ),
        answer=lambda d: d["cached"] + d["query"] + 1,
        explain=_why_keys,
        where="section 5, Reading",
    ),
    ChoiceQuestion(
        id="02.q.tradeoff",
        text="What does the engine pay for forward(input_ids, positions), with the rest in a "
        "global Context?",
        options=(
            Option(
                "Operators depend on something that no signature shows: a run without a context, "
                "or with a stale one, cannot be seen from the call.",
                "so the scope has to guarantee it: set before, reset after, never two.",
                right=True,
            ),
            Option(
                "Time: looking the context up in every layer slows the step down noticeably.",
                "a look-up is one attribute read; the lesson measures it.",
            ),
            Option(
                "Memory: the context keeps a copy of every tensor.",
                "it only refers to tensors that exist anyway, and lets go of them at the end.",
            ),
            Option(
                "Accuracy: operators may see rounded values.",
                "they see the very same tensors as arguments would carry.",
            ),
        ),
        where="section 1, The parameters that no signature shows",
    ),
    ChoiceQuestion(
        id="02.q.premise",
        text="Which change breaks the premise that the global Context rests on?",
        options=(
            Option(
                "Two threads of one process run a step each, at the same time.",
                "both would set and read the one context: a serial loop is the premise.",
                right=True,
            ),
            Option(
                "Four ranks, each a process of its own, run the same step together.",
                "every process has its own global; that is why there is one process a rank.",
            ),
            Option(
                "A step with prefill and decode: the model runs twice, one after the other.",
                "each run has its own scope, and they do not overlap.",
            ),
            Option(
                "The next step is launched before the last one's tokens are read.",
                "the launches are still one after the other; the GPU works on tensors it was "
                "given, not on the global.",
            ),
        ),
        where="section 8, What it rests on",
    ),
    ChoiceQuestion(
        id="02.q.reset",
        text="An operator raises in the middle of a run, and the context was set and reset by two "
        "plain calls. What happens in the next step of an engine that goes on?",
        options=(
            Option(
                "Its context is refused, or the old one is found: the reset never ran.",
                "hence the scope: `finally` runs however the block ends.",
                right=True,
            ),
            Option(
                "Nothing: Python resets globals when an exception passes.",
                "it unwinds local variables only; a global stays as it is.",
            ),
            Option(
                "Nothing: every step sets its own context anyway.",
                "a warm-up or a direct call that forgets it finds the stale one, silently; and "
                "its tensors are kept alive.",
            ),
        ),
        where="section 2, A scope",
    ),
)
