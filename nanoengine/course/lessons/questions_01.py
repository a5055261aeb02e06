"""Lesson 01's questions: the article's self-check, answered by doing."""

import random
from typing import Any

from nanoengine.course.lessons.sequences import PrefillSequence
from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion
from nanoengine.engine import inputs

_SIZE = 4


def _draw_chunk(rng: random.Random) -> dict[str, Any]:
    """A sequence with some cached blocks whose chunk ends before its prompt does."""
    cached = _SIZE * rng.randint(1, 2)
    scheduled = rng.randint(3, 6)
    length = cached + scheduled + rng.randint(1, 4)
    blocks = rng.sample(range(1, 12), -(-length // _SIZE))
    return {"cached": cached, "scheduled": scheduled, "length": length, "blocks": blocks}


def _prepared(drawn: dict[str, Any]) -> inputs.PrefillInputs:
    seq = PrefillSequence(
        list(range(drawn["length"])), drawn["cached"], drawn["scheduled"], drawn["blocks"]
    )
    return inputs.prepare_prefill([seq], _SIZE)


def _chunk_text(what: str) -> Any:
    def text(drawn: dict[str, Any]) -> str:
        return (
            f"A prompt of {drawn['length']} tokens has block table {drawn['blocks']} "
            f"(block size {_SIZE}); {drawn['cached']} tokens are cached and "
            f"{drawn['scheduled']} are scheduled for this prefill step. {what}"
        )

    return text


def _why_slots(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, list):
        return "give a list of numbers."
    if len(given) != drawn["scheduled"]:
        return f"{drawn['scheduled']} tokens are scheduled, so there are as many slots."
    if given and given[0] == drawn["blocks"][0] * _SIZE:
        return "the cached tokens have their slots already; start at the first uncached position."
    return "take each position's block from the table, times the block size, plus the offset."


def _why_lens(drawn: dict[str, Any], given: Any) -> str:
    if given == [0, drawn["length"]]:
        return "that is the whole prompt; keys reach to the end of this chunk only."
    if given == [0, drawn["scheduled"]]:
        return "these are the queries; keys also cover what is cached."
    if given == drawn["cached"] + drawn["scheduled"]:
        return "right length, but it is a list of running sums that starts with 0."
    return "it holds 0 and the number of tokens from position 0 to the end of this chunk."


QUESTIONS = (
    ValueQuestion(
        id="01.q.slots",
        draw=_draw_chunk,
        text=_chunk_text("Which slot_mapping does the step get (a list)?"),
        answer=lambda drawn: _prepared(drawn).slot_mapping,
        explain=_why_slots,
        where="section 4, Slots",
    ),
    ValueQuestion(
        id="01.q.cu_seqlens_k",
        draw=_draw_chunk,
        text=_chunk_text("Which cu_seqlens_k does the step get (a list)?"),
        answer=lambda drawn: _prepared(drawn).cu_seqlens_k,
        explain=_why_lens,
        where="section 6, Prefill",
    ),
    ChoiceQuestion(
        id="01.q.tables",
        text="A prefill batch holds a fresh prompt and one with a cached beginning. Who gets a "
        "row in block_tables?",
        options=(
            Option(
                "Both of them.",
                "one kernel call serves the batch, and it reads every sequence's keys in one way: "
                "from the cache, through its table.",
                right=True,
            ),
            Option(
                "Only the one with history.",
                "row i must belong to sequence i: the kernel finds a sequence's table by its row.",
            ),
            Option(
                "Neither: tables are for decode.",
                "the cached keys are not among this step's k and v; without a table nobody finds "
                "them.",
            ),
        ),
        where="section 6, Prefill",
    ),
    ChoiceQuestion(
        id="01.q.context_lens",
        text="A sequence has 10 tokens; the tenth was sampled in the last step. The decode step "
        "feeds it with context_lens 10 although only 9 tokens are cached. Is that off by one?",
        options=(
            Option(
                "No.",
                "attention first writes the new token's K and V into its slot, then reads all 10.",
                right=True,
            ),
            Option(
                "Yes: it should be 9.",
                "with 9 the new token would not see itself: the newest key would be left out.",
            ),
            Option(
                "Yes: it should be 11.",
                "the token sampled by this step does not exist yet: it has no K and V.",
            ),
        ),
        where="section 7, Decode",
    ),
    ChoiceQuestion(
        id="01.q.minus_one",
        text="What do -1 in block_tables and -1 in slot_mapping mean?",
        options=(
            Option(
                "Filling that is never read; and: write this token nowhere.",
                "the first only makes the table a rectangle, the second is an instruction.",
                right=True,
            ),
            Option(
                "Both mean: skip this block.",
                "a slot is a single token's place, and table filling is not skipped but never "
                "reached: context_lens ends before it.",
            ),
            Option(
                "Both mean the last block, as in Python.",
                "no kernel counts from the end; in torch cache[-1] would: a silent bug that the "
                "write must avoid.",
            ),
        ),
        where="section 5, Block tables",
    ),
)
