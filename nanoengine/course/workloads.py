"""The workloads that grade: small, and together they reach every branch of the engine."""

import random
import socket
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch

from nanoengine.course import ranks, tiny
from nanoengine.sampling_params import SamplingParams

_RANKS = "tensor_parallel_size"


class Arrival(NamedTuple):
    """A request: the step before which it arrives, its prompt, and how many tokens it wants.

    temperature, seed, top_k: of its sampling; greedy without them.
    """

    step: int
    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    top_k: int = 0

    @property
    def params(self) -> SamplingParams:
        """The same for the engine; only max_tokens ends the request."""
        return SamplingParams(
            temperature=self.temperature,
            seed=self.seed,
            top_k=self.top_k,
            max_tokens=self.max_tokens,
            ignore_eos=True,
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload. situation: how a message calls it. warm_up: run that before the requests.

    buffer_bytes: of the memory that ranks share, so that messages need pieces; 0: as always.
    needs: "cuda" where it cannot run without a GPU; the grade is then "partial".
    bench: a benchmark is run in the place of requests: the arguments of `nanoengine bench`.
    """

    name: str
    situation: str
    options: dict[str, Any]
    arrivals: tuple[Arrival, ...]
    warm_up: bool = False
    buffer_bytes: int = 0
    needs: Literal["", "cuda"] = ""
    bench: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Why it cannot run on this machine, or None."""
        if self.ranks > 1 and not hasattr(socket, "send_fds"):
            return "several ranks need Linux or macOS"
        return "no GPU" if self.needs == "cuda" and not torch.cuda.is_available() else None

    @property
    def ranks(self) -> int:
        """Processes that share each layer."""
        return int(self.options.get(_RANKS, 1))

    def on_one_rank(self) -> "Scenario":
        """The same work without tensor parallelism: it gives the same tokens."""
        options = {key: value for key, value in self.options.items() if key != _RANKS}
        return replace(self, options=options, buffer_bytes=0)


def _prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).sample(range(tiny.VOCAB), length)


_BASE: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "reference",
    "kvcache_block_size": 4,
    "num_kvcache_blocks": 64,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "enforce_eager": True,
}
_SHARED = _prompt(1, 9)
_POOL_BYTES = 13 * 1024 - 1  # 12 blocks of the grading model, and not quite a thirteenth

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "warm-up",
            "warm-up (sequences that own no blocks)",
            {**_BASE, "max_num_batched_tokens": 32, "max_model_len": 16},
            (Arrival(0, _prompt(2, 6), 2),),
            warm_up=True,
        ),
        Scenario(
            "chunks",
            "prompts computed in chunks that end inside a block",
            {**_BASE, "max_num_batched_tokens": 7, "max_num_seqs": 5},
            (
                Arrival(0, _prompt(3, 17), 4),
                Arrival(0, _prompt(4, 1), 6),
                Arrival(0, _prompt(5, 9), 3),
                Arrival(2, _prompt(6, 8), 5),
                Arrival(4, _prompt(7, 12), 2),
            ),
        ),
        Scenario(
            "prefix",
            "a batch of fresh prompts and prompts whose beginning is cached",
            _BASE,
            (
                Arrival(0, [*_SHARED, *_prompt(8, 4)], 6),
                Arrival(2, _prompt(9, 5), 4),
                Arrival(2, [*_SHARED, *_prompt(10, 7)], 5),
                Arrival(2, _SHARED[:8], 5),
                Arrival(4, [*_SHARED, *_prompt(8, 4)], 4),
            ),
        ),
        Scenario(
            "buckets",
            "11 sequences of different lengths, decoded in padded graphs while they end",
            {**_BASE, "enforce_eager": False, "max_num_seqs": 11, "max_model_len": 48},
            tuple(Arrival(0, _prompt(80 + i, 1 + i % 9), 2 + (5 * i) % 11) for i in range(11)),
        ),
        Scenario(
            "reused blocks",
            "14 sequences in padded graphs; a finished one's blocks are soon another's",
            {
                **_BASE,
                "enforce_eager": False,
                "max_num_seqs": 11,
                "max_model_len": 32,
                "num_kvcache_blocks": 18,
            },
            tuple(
                Arrival(
                    0 if i < 11 else 2 * i - 18,
                    _prompt(140 + i, 1 + 4 * i % 7),
                    2 + 3 * i % 8 + (0 if i % 4 else 6),
                )
                for i in range(14)
            ),
        ),
        Scenario(
            "small pool",
            "blocks of 8 tokens in a pool so small that sequences are preempted",
            {**_BASE, "kvcache_block_size": 8, "num_kvcache_blocks": 7},
            tuple(Arrival(i // 2, _prompt(40 + i, 7 + 3 * i), 12) for i in range(4)),
        ),
        Scenario(
            "carved pool",
            f"a KV pool carved from {_POOL_BYTES} bytes",
            {**_BASE, "num_kvcache_blocks": None, "cpu_kvcache_bytes": _POOL_BYTES},
            tuple(Arrival(0, _prompt(63 + i, 6 + 5 * i), 9) for i in range(3)),
        ),
        Scenario(
            "two ranks",
            "on two ranks, with messages longer than the buffer",
            {**_BASE, _RANKS: 2, "worker_timeout": 4.0, "max_num_batched_tokens": 24},
            (
                Arrival(0, [*_SHARED, *_prompt(8, 4)], 6),
                Arrival(0, _prompt(91, 1), 3),
                Arrival(2, [*_SHARED, *_prompt(10, 27)], 5),
                Arrival(2, _prompt(92, 6), 4),
            ),
            buffer_bytes=ranks.buffer_bytes(13),  # a step of two sequences just fits: 1 + 2 x 6
        ),
        Scenario(
            "benchmark",
            "a benchmark of 5 requests (`nanoengine bench`, one run at a time)",
            {},
            (),
            bench=(
                *("--requests=5", "--input=3-17", "--output=1-9", "--seed=5", "--repeats=1"),
                "--no-overlap",
            ),
        ),
        Scenario(
            "benchmark in chunks",
            "a benchmark whose prompts come in chunks (`nanoengine bench`, 16 tokens a step)",
            {},
            (),
            bench=(
                *("--requests=7", "--input=2-24", "--output=2-6", "--seed=11", "--repeats=1"),
                *("--max-num-batched-tokens=16", "--max-num-seqs=3"),
            ),
        ),
        Scenario(
            "sampled",
            "a batch of greedy and sampled requests, each with its own temperature and seed",
            _BASE,
            (
                Arrival(0, _prompt(90, 6), 8, temperature=1.0, seed=1),
                Arrival(0, _prompt(91, 3), 9),
                Arrival(1, _prompt(92, 9), 7, temperature=0.6, seed=2),
                Arrival(2, _prompt(93, 5), 8, temperature=2.5, seed=3),
                Arrival(3, _prompt(94, 7), 6, temperature=1.5, seed=4, top_k=5),
            ),
        ),
    )
}
