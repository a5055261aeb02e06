"""The least time this machine needs for a workload, whoever programs it.

Decoding is bound by memory: every step reads all weights once, and each sequence's K and V.
Prefill is bound by arithmetic. What is left between this floor and a measurement is the engine's.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nanoengine.engine.kv_cache import block_bytes
from nanoengine.engine.model_runner import ModelRunner

_COPY_BYTES = {"cuda": 2 << 30, "cpu": 256 << 20}
_MATMUL_SIZE = {"cuda": 8192, "cpu": 1024}
_ROUNDS = 7


def floor_seconds(
    lengths: Sequence[tuple[int, int]],
    weight_bytes: int,
    kv_bytes_per_token: int,
    bytes_per_second: float,
    prefill_flops: float = 0.0,
    flops_per_second: float = math.inf,
) -> float:
    """Seconds below which no engine can serve requests of (prompt, output) lengths.

    All requests decode together, so there are as many decode steps as the longest output has
    tokens after its first, which the prefill gives. Each step reads the weights once. The j-th
    decode step of a request with p prompt tokens reads the K and V of p + j tokens. The prefill
    takes prefill_flops / flops_per_second, and no decode step runs meanwhile.

    One request of 3 prompt and 3 output tokens: 2 steps, 4 + 5 token positions. With 100 bytes
    of weights, 10 bytes a token and 145 bytes/s: (2 * 100 + 9 * 10) / 145 = 2 s.
    """
    steps = max((output - 1 for _, output in lengths), default=0)
    positions = sum(kv_positions(prompt, output) for prompt, output in lengths)
    moved = steps * weight_bytes + positions * kv_bytes_per_token
    return moved / bytes_per_second + prefill_flops / flops_per_second


def kv_positions(prompt: int, output: int) -> int:
    """Token positions that one request's decode steps read, all together.

    >>> kv_positions(prompt=3, output=3)
    9
    """
    steps = output - 1
    return steps * prompt + steps * (steps + 1) // 2


def decode_weight_bytes(runner: ModelRunner) -> int:
    """Bytes of weights that a decode step reads on this rank.

    Of an embedding a step reads a row a sequence, so it counts only where it is the head too.
    """
    model = runner.model
    total = sum(p.numel() * p.element_size() for p in model.parameters())  # tied ones once
    embedding = model.model.embed_tokens.weight
    if embedding is not model.lm_head.weight:
        total -= embedding.numel() * embedding.element_size()
    return total


def kv_bytes_per_token(runner: ModelRunner) -> int:
    """Bytes of K and V of one token in all layers of this rank's cache."""
    _, layers, _, _, heads, head_dim = runner.kv_cache.shape
    return block_bytes(layers, 1, heads, head_dim, runner.dtype.itemsize)


def prefill_flops(runner: ModelRunner, prompts: Sequence[int]) -> float:
    """Floating-point operations of prefilling prompts of these lengths on this rank.

    Two for each weight of a layer and token, two for each weight of the head and prompt, and for
    attention four for each query, head dimension and key that it may see.
    """
    model, config = runner.model, runner.model_config
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    matrices = sum(
        p.numel()
        for p in model.parameters()
        if p.ndim == 2 and p is not embedding and p is not head
    )
    heads = model.model.layers[0].self_attn.qkv_proj.num_heads  # type: ignore[union-attr]
    pairs = sum(length * (length + 1) // 2 for length in prompts)
    attention = 4 * config.num_hidden_layers * int(heads) * config.head_dim * pairs  # type: ignore[arg-type]
    return 2.0 * matrices * sum(prompts) + 2.0 * head.numel() * len(prompts) + attention


def measure_copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read plus written, of the best of several copies of a large tensor."""
    size = _COPY_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _best(lambda: target.copy_(source), device)


def measure_matmul_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of the best of several square products."""
    size = _MATMUL_SIZE[device.type]
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    return 2.0 * size**3 / _best(lambda: a @ b, device)


def _best(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest of several rounds, after one that does not count."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
