"""What a scenario does to an engine before it runs, and the write-set check of its KV memory."""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.sequence import Batch
from nanoengine.layers.attention import Attention

if TYPE_CHECKING:
    from nanoengine.course.scenarios import Observation
    from nanoengine.engine.engine import LLMEngine


def shuffle_blocks(engine: "LLMEngine") -> None:
    """Free blocks in an order that no answer can guess, always the same."""
    blocks = list(engine.block_manager.free_block_ids)
    random.Random(7).shuffle(blocks)
    blocks.remove(0)
    blocks.insert(1, 0)  # block 0 is in use early: nothing may take 0 for "no block"
    engine.block_manager.free_block_ids = OrderedDict.fromkeys(blocks)


@contextmanager
def unbound_caches(engine: "LLMEngine") -> Iterator[None]:
    """As before the KV cache is carved: a warm-up run has nothing to write to."""
    layers = [m for m in engine.runner.model.modules() if isinstance(m, Attention)]
    bound = [(layer.k_cache, layer.v_cache) for layer in layers]
    for layer in layers:
        layer.k_cache = layer.v_cache = torch.empty(0)
    try:
        yield
    finally:
        for layer, (k_cache, v_cache) in zip(layers, bound, strict=True):
            layer.k_cache, layer.v_cache = k_cache, v_cache


Run = Callable[..., SampledTokens]


def watched(engine: "LLMEngine", run_model: Run, seen: "Observation") -> Run:
    """`runner.run`, with the KV memory compared before and after: the write-set check."""
    size = engine.runner.block_size
    memory = engine.runner.kv_cache.view(torch.int32)  # bits: NaN equals NaN

    def run(batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        own = {
            seq.block_table[p // size] * size + p % size: (seq.request_id, p)
            for seq, start, end, _ in batch.items
            for p in range(start, end)
        }
        # so that a slot shows as written even when it gets the very bits it held before
        engine.runner.kv_cache.flatten(2, 3)[:, :, list(own)] = torch.nan
        before = memory.clone()
        tokens = run_model(batch, record)
        differs = (memory != before).any(dim=-1).any(dim=-1).any(dim=0).any(dim=0)
        changed = set(differs.flatten().nonzero().flatten().tolist())
        if seen.wrong_write is None:
            seen.wrong_write = _wrong_write(own, changed, size)
        return tokens

    return run


def _wrong_write(own: dict[int, tuple[str, int]], changed: set[int], size: int) -> str | None:
    """The first slot that was written and should not have been, or the other way round."""
    for slot in sorted(changed - own.keys()):
        return (
            f"a step wrote slot {slot} (block {slot // size}, offset {slot % size}), "
            "where none of its tokens belongs"
        )
    for slot in sorted(own.keys() - changed):
        request, position = own[slot]
        return f"position {position} of {request} belongs in slot {slot}, which was not written"
    return None
