"""Lesson 00, the tour: one exercise to try the mechanism, and the five steps of a run."""

import torch

from nanoengine.course.lessons.questions_00 import QUESTIONS
from nanoengine.course.lessons.tensors import (
    call_with_tensors,
    first_far_row,
    not_a_tensor,
    random_tensor,
)
from nanoengine.course.registry import Case, Exercise
from nanoengine.course.values import Difference

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "The tour"

# seed, n, m of a case
Args = tuple[int, int, int]


def hello_cases() -> list[Case]:
    """x of [n, 2 m], from one short row on."""
    hand = [
        ("one row", (1, 1, 2)),
        ("several rows", (2, 3, 4)),
        ("one column a half", (3, 4, 1)),
        ("as wide as a model's", (4, 5, 48)),
    ]
    return [
        Case(check, f"{check} (x of shape [{args[1]}, {2 * args[2]}])", args)
        for check, args in hand
    ]


def hello_arguments(args: Args) -> tuple[torch.Tensor]:
    """Plain numbers -> (x,)."""
    seed, n, m = args
    return (random_tensor(seed, n, 2 * m),)


def compare_hello(case: Case, expected: dict, got: dict) -> Difference | None:  # type: ignore[type-arg]
    """The first row that is off, and which slip would give it."""
    wrong = not_a_tensor(expected, got, ("x",))
    if wrong:
        return wrong
    row = first_far_row(expected["result"], got["result"])
    if row is None:
        return None
    right, mine = expected["result"][row], got["result"][row]
    text = f"row {row} should begin with {right[0]:.3f}, yours begins with {mine[0]:.3f}"
    x = hello_arguments(case.args)[0]
    return Difference(text + _slip(x, torch.tensor(got["result"])))


def _slip(x: torch.Tensor, mine: torch.Tensor) -> str:
    """Which common slip gives `mine`, in words, or nothing."""
    first, second = x.chunk(2, dim=-1)
    silu = torch.nn.functional.silu
    slips = {
        "that is silu of the second half times the first: swap them": silu(second) * first,
        "that is sigmoid(gate) * up; silu(gate) is gate * sigmoid(gate)": first.sigmoid() * second,
        "that takes every other column; the halves lie side by side": silu(x[:, ::2]) * x[:, 1::2],
        "that adds the halves; multiply them": silu(first) + second,
        "that is silu of both; only the first half goes through it": silu(first) * silu(second),
        "silu is missing: these are the halves multiplied": first * second,
    }
    for words, values in slips.items():
        if values.shape == mine.shape and torch.allclose(values, mine, atol=1e-5):
            return f": {words}"
    return ""


EXERCISES = (
    Exercise(
        id="00.hello",
        target="nanoengine.layers.activation:silu_and_mul",
        title="Hello, engine",
        level="small",
        minutes=5,
        points=1,
        names=("F",),
        hints=(
            "The last dimension holds two halves side by side: the gate, then the values it "
            "lets through. silu is torch.nn.functional.silu.",
            "x has shape [n, 2 m]. Two parts of shape [n, m]; one goes through silu; the product, "
            "element by element, has shape [n, m].",
            "gate, up = x.chunk(2, dim=-1); return F.silu(gate) * up",
        ),
        where="section 4, Hello",
        cases=hello_cases,
        arguments=hello_arguments,
        observe=call_with_tensors,
        compare=compare_hello,
        scenarios=("chunks",),
        captured=True,
    ),
)
