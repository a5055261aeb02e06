"""Lesson 00's questions: the five steps of a run, who does them, and what they hold."""

import random
from typing import Any

from nanoengine.course.quiz import ValueQuestion

STEPS = (
    "make tensors from the sequences and set the context",
    "run the model: tokens to hidden states",
    "compute logits from hidden states",
    "sample a token for each sequence",
    "reset the context",
)
_SAMPLING = 4


def _draw_order(rng: random.Random) -> dict[str, Any]:
    return {"shown": rng.sample(range(len(STEPS)), len(STEPS))}


def _order_text(drawn: dict[str, Any]) -> str:
    rows = [f"  {i}) {STEPS[step]}" for i, step in enumerate(drawn["shown"], 1)]
    return "\n".join(
        ["In which order does ModelRunner.run do these? A list of the five numbers.", *rows]
    )


def _order(drawn: dict[str, Any]) -> list[int]:
    return [1 + drawn["shown"].index(step) for step in range(len(STEPS))]


def _why_order(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, list) or sorted(map(str, given)) != sorted(map(str, _order(drawn))):
        return "give a list with each of 1 to 5 once."
    if given[0] != _order(drawn)[0]:
        return "nothing can run before there are tensors."
    if given[-1] != _order(drawn)[-1]:
        return "the context is there until the run is over, whatever happens."
    return "the model gives hidden states, the head turns them into logits, sampling needs logits."


def _why_rank(drawn: dict[str, Any], given: Any) -> str:
    if given == _SAMPLING:
        return "right step, but give a list."
    if isinstance(given, list) and 3 in given:
        return "every rank holds a part of the vocabulary, so all take part in the logits."
    if isinstance(given, list) and (1 in given or 5 in given):
        return "every rank runs the same model on its own part, so each needs the tensors."
    return "which step needs all logits in one place, and must happen once only?"


def _draw_prompts(rng: random.Random) -> dict[str, Any]:
    return {"lengths": [rng.randint(2, 9) for _ in range(rng.randint(2, 4))]}


def _rows(drawn: dict[str, Any]) -> list[int]:
    return [sum(drawn["lengths"]), len(drawn["lengths"])]


def _why_rows(drawn: dict[str, Any], given: Any) -> str:
    total, count = _rows(drawn)
    if given == [total, total]:
        return "logits are computed from each sequence's last row only: that is where it goes on."
    if given == [count, count]:
        return "that is decode; a prefill run feeds every token of every prompt."
    return "give two numbers: rows of input_ids, rows of logits."


QUESTIONS = (
    ValueQuestion(
        id="00.q.order",
        draw=_draw_order,
        text=_order_text,
        answer=_order,
        explain=_why_order,
        where="section 2, The five steps",
    ),
    ValueQuestion(
        id="00.q.rank",
        draw=lambda rng: {},
        text=lambda drawn: (
            "With several ranks, which of the five steps (1 tensors and context, "
            "2 model, 3 logits, 4 sampling, 5 reset) run on rank 0 only? A list of numbers."
        ),
        answer=lambda drawn: [_SAMPLING],
        explain=_why_rank,
        where="section 2, The five steps",
    ),
    ValueQuestion(
        id="00.q.rows",
        draw=_draw_prompts,
        text=lambda drawn: (
            f"Fresh prompts of {drawn['lengths']} tokens are prefilled in one run. "
            "How many rows have input_ids and the logits? A list of two numbers."
        ),
        answer=_rows,
        explain=_why_rows,
        where="section 3, One prefill, one decode",
    ),
)
