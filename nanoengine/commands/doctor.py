"""`nanoengine doctor`: what this machine can run, and why it would run it that way."""

import json
import platform
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from nanoengine import environment
from nanoengine.attention.base import choose_backend
from nanoengine.classroom import ClassroomModelError, classroom_folder, verify_folder
from nanoengine.commands.options import Parser
from nanoengine.config import BACKENDS, EngineConfig
from nanoengine.distributed.inbox import ONE_SHOT_BYTES, why_not
from nanoengine.errors import ConfigError
from nanoengine.sources import cache_dir, list_models


def main(argv: Sequence[str]) -> int:
    """`nanoengine doctor [--json]`: a report; status 1 when something needs a remedy."""
    parser = Parser("nanoengine doctor", "What this machine can run, and why.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse(argv)
    facts = examine()
    if args.json:
        print(json.dumps(facts, indent=1))
    else:
        for line in report(facts):
            print(line)
    return 1 if facts["problems"] else 0


def examine() -> dict[str, Any]:
    """Everything the report shows, as plain values."""
    config = EngineConfig()
    device = config.resolve_device()
    choice = choose_backend("auto", device)
    total, available = environment.memory_bytes()
    return {
        "versions": environment.versions(),
        "platform": platform.platform(),
        "device": device.type,
        "cpu": {
            "name": environment.cpu_name(),
            "cores": environment.usable_cores(),
            "torch_threads": torch.get_num_threads(),
            "total_bytes": total,
            "available_bytes": available,
        },
        "gpus": [
            environment.gpu_facts(torch.device("cuda", index))
            for index in range(torch.cuda.device_count())
        ],
        "attention": {
            "backend": choice.name,
            "reason": choice.reason,
            "others": _other_backends(choice.name, device),
        },
        "one_kernel_sums": _sums(torch.cuda.device_count()),
        "kvcache_block_size": config.block_size(device),
        "graphs": config.use_graphs(device),
        "models": {name: str(folder) for name, folder in list_models()},
        "cache_dir": str(cache_dir(create=False)),
        "problems": _problems(),
    }


def report(facts: dict[str, Any]) -> Iterator[str]:
    """The facts as lines for a person."""
    found = {name: number for name, number in facts["versions"].items() if number}
    yield _row("versions", ", ".join(f"{name} {number}" for name, number in found.items()))
    missing = [name for name, number in facts["versions"].items() if not number]
    yield _row("not installed", ", ".join(missing) or "nothing")
    yield _row("platform", facts["platform"])
    cpu = facts["cpu"]
    yield _row(
        "cpu", f"{cpu['name']}; {cpu['cores']} cores, torch uses {cpu['torch_threads']} threads"
    )
    yield _row("memory", _memory(cpu["total_bytes"], cpu["available_bytes"]))
    for index, gpu in enumerate(facts["gpus"]):
        bfloat16 = "bfloat16" if gpu["bfloat16"] else "no bfloat16: use --dtype float16"
        yield _row(
            f"gpu {index}",
            f"{gpu['name']}, compute capability {gpu['compute_capability']}, {bfloat16}; "
            f"{_memory(gpu['total_bytes'], gpu['free_bytes'])}",
        )
    graphs = "decode replays graphs" if facts["graphs"] else "decode runs eagerly"
    yield _row(
        "engine",
        f"runs on {facts['device']}, KV blocks of {facts['kvcache_block_size']} tokens, {graphs}",
    )
    attention = facts["attention"]
    yield _row("attention", f"{attention['backend']}: {attention['reason']}")
    for name, state in attention["others"].items():
        yield _row("", f"{name}: {state}")
    if facts["one_kernel_sums"] is not None:
        yield _row("several gpus", facts["one_kernel_sums"])
    for number, (name, folder) in enumerate(facts["models"].items()):
        yield _row("" if number else "models", f"{name}: {folder}")
    if not facts["models"]:
        yield _row("models", "none; `nanoengine fetch smollm2` downloads one")
    yield _row("cache", facts["cache_dir"])
    for problem in facts["problems"]:
        yield _row("PROBLEM", problem)


def _sums(gpus: int) -> str | None:
    """How 2, 4 or 8 GPUs of this host would do small sums; None: there are no two."""
    ranks = max((size for size in ONE_SHOT_BYTES if size <= gpus), default=None)
    if ranks is None:
        return None
    reason = why_not(ranks)
    if reason is not None:
        return f"NCCL does all sums, for {reason}"
    return f"small sums of {ranks} ranks take one kernel, larger ones NCCL"


def _other_backends(chosen: str, device: torch.device) -> dict[str, str]:
    """What is to be said of the attention backends that are not the default here."""
    others = {}
    for name in BACKENDS:
        if name not in ("auto", chosen):
            try:
                choose_backend(name, device)
                others[name] = "available"
            except ConfigError as error:
                others[name] = str(error)
    return others


def _problems() -> list[str]:
    """What would stop `LLM()` from working as it should."""
    try:
        verify_folder(classroom_folder())
    except ClassroomModelError as error:
        return [str(error)]
    return []


def _memory(total: int | None, free: int | None) -> str:
    if total is None:
        return "unknown on this system"
    rest = "" if free is None else f", {free / 2**30:.1f} GiB available"
    return f"{total / 2**30:.1f} GiB{rest}"


def _row(name: str, text: str) -> str:
    return f"{name:<14} {text}"
