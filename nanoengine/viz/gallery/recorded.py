"""Committed measurements and worked examples: the JSON files in figures/data."""

import json
from pathlib import Path
from typing import Any

import nanoengine
from nanoengine.errors import NanoengineError
from nanoengine.viz.runner import Call

DATA = "data"


class FiguresError(NanoengineError):
    """A figure or its data is missing, or differs from what the code draws now."""


def figures_folder() -> Path:
    """The checkout's `figures/`, or the one in the current folder.

    Raises FiguresError when neither holds recorded data.
    """
    places = [Path(nanoengine.__file__).parent.parent / "figures", Path("figures").absolute()]
    for place in places:
        if (place / DATA).is_dir():
            return place
    raise FiguresError(
        f"no {DATA}/ in {' or '.join(map(str, places))}: the recorded data comes with the "
        "repository, so run this in a checkout of it"
    )


def recorded(name: str) -> dict[str, Any]:
    """The content of figures/data/NAME. Raises FiguresError when it is missing or no JSON."""
    path = figures_folder() / DATA / name
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FiguresError(f"{path} cannot be read ({error}): restore it with git") from None
    return content


def worked_card() -> dict[str, Any]:
    """What `memory_bar` draws of lesson 03's worked example."""
    terms = recorded("worked_card.json")
    del terms["what"]
    return {"terms": terms}


def step_calls() -> dict[str, Any]:
    """What `call_chain` draws: a decode step's calls, as figures/record.py measured them."""
    step = recorded("step_calls_cpu.json")
    source = f"Recorded: {step['device']}, torch {step['versions']['torch']}."
    return {"calls": [Call(**call) for call in step["calls"]], "source": source}
