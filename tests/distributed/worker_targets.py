"""What the workers of these tests do: module-level functions, which a new process can import."""

import os
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import torch

from nanoengine.distributed.group import TPGroup

SUM, ECHO, SLEEP, RAISE, DIE, MEET = range(1, 7)
written_by_setup: list[str] = []


def remember(text: str) -> None:
    """A worker-setup function."""
    written_by_setup.append(text)


def serve(group: TPGroup, args: dict[str, Any]) -> Mapping[int, Callable[["array[int]"], None]]:
    """Handlers that append what they saw to args["log"], a file of this rank's."""
    path = f"{args['log']}.{group.rank}"

    def log(*words: object) -> None:
        with open(path, "a", encoding="utf-8") as file:
            print(*words, file=file)

    def only(values: "array[int]") -> bool:
        return group.rank == values[0]

    def on_sum(values: "array[int]") -> None:
        time.sleep(args.get("delay", 0.0))
        log("sum", len(values), sum(values), *values[:1])

    def on_echo(values: "array[int]") -> None:
        group.all_reduce(torch.tensor(list(values)))

    def on_sleep(values: "array[int]") -> None:
        if only(values):
            time.sleep(1000)
        meet()

    def on_raise(values: "array[int]") -> None:
        if only(values):
            raise ValueError(f"rank {group.rank} was told to raise")
        meet()

    def on_die(values: "array[int]") -> None:
        if only(values):
            os._exit(values[1])
        meet()

    def on_meet(values: "array[int]") -> None:
        log("meet", meet(), *written_by_setup)

    def meet() -> int:
        return int(group.all_reduce(torch.tensor([group.rank + 1]))[0])

    if args.get("fail_in_build"):
        raise ValueError("told to fail in build")
    return {
        SUM: on_sum,
        ECHO: on_echo,
        SLEEP: on_sleep,
        RAISE: on_raise,
        DIE: on_die,
        MEET: on_meet,
    }
