"""What the figures show of the engine: small runs of the classroom model on the CPU, greedy.

All of it is integers (slots, tables, borders), the same on every machine.
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from itertools import pairwise
from typing import Any, cast

from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sequence import Sequence
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams
from nanoengine.tokenizer import Tokenizer
from nanoengine.viz.kv_pool import Held
from nanoengine.viz.prefix import Sharer

Tables = list[list[int]]

BLOCK_SIZE = 4
NUM_BLOCKS = 12
TEN = list(range(100, 110))  # ten token ids, all different
THREE = [400, 401, 402]
FIRST_FREE = [7, 9, 2, 5]  # the first request takes 7 and 9; a hit on 7 then goes on with 2, 5
GROWING = ["The old dog", "Once upon a time"]
GROWING_BLOCKS, GROWING_TOKENS = 6, 6
SHARING = [
    "Once upon a time, there was a little girl who had a cat.",
    "Once upon a time, there was a little dog",
    "Once upon a time, there lived",
]
RUN_PROMPTS = ["The old dog", "It was a cold winter morning, and"]
_EARLY = 4  # steps after which the pool is worth a picture


def engine(on_step: Callable[[StepRecord], None] | None = None, **options: Any) -> LLM:
    """The classroom model with small blocks, every step applied at once."""
    small = {"kvcache_block_size": BLOCK_SIZE, "num_kvcache_blocks": NUM_BLOCKS, "overlap": False}
    return LLM(device="cpu", attention_backend="reference", on_step=on_step, **(small | options))


def greedy(max_tokens: int) -> SamplingParams:
    """So many tokens, always the same."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def prefix_hit(*others: SequenceOf[int]) -> PrefillInputs:
    """The prefill of ten tokens whose first block is cached, in one step with fresh prompts.

    The ten tokens' block table is [7, 2, 5].
    """
    records: list[StepRecord] = []
    with engine(records.append) as llm:
        rest = [block for block in range(NUM_BLOCKS) if block not in FIRST_FREE]
        llm.engine.block_manager.free_block_ids = OrderedDict.fromkeys(FIRST_FREE + rest)
        llm.generate([TEN[: BLOCK_SIZE + 1]], greedy(1), use_tqdm=False)
        records.clear()
        llm.generate([TEN, *others], greedy(1), use_tqdm=False)
    return cast(PrefillInputs, records[0].inputs)


def slot_mapping() -> dict[str, Any]:
    """What `address_map` draws: the ten tokens."""
    inputs = prefix_hit()
    return {
        "block_table": cast(Tables, inputs.block_tables)[0],
        "start": inputs.positions[0],
        "end": inputs.cu_seqlens_k[-1],
        "block_size": BLOCK_SIZE,
        "slots": inputs.slot_mapping,
    }


def packed_prefill() -> dict[str, Any]:
    """What `packed_batch` draws: the ten tokens and three fresh ones."""
    return {"inputs": prefix_hit(THREE)}


def kv_memory() -> dict[str, Any]:
    """What `kv_pool` draws: the first later decode step in which a sequence gets a block."""
    records: list[StepRecord] = []
    with engine(records.append, num_kvcache_blocks=GROWING_BLOCKS) as llm:
        llm.generate(GROWING, greedy(GROWING_TOKENS), use_tqdm=False)
    record = next(now for old, now in pairwise(records[_EARLY:]) if _tables(now) != _tables(old))
    after = _tables(record)
    starts = [item.start for item in record.batch.items]
    ends = [item.end for item in record.batch.items]
    owned = [-(-start // BLOCK_SIZE) for start in starts]
    return {
        "before": [Held(t[:n], s) for t, n, s in zip(after, owned, starts, strict=True)],
        "after": [Held(t, e) for t, e in zip(after, ends, strict=True)],
        "num_blocks": GROWING_BLOCKS,
        "block_size": BLOCK_SIZE,
        "names": [f'"{prompt} ..."' for prompt in GROWING],
    }


def _tables(record: StepRecord) -> list[list[int]]:
    return [_filled(table) for table in cast(DecodeInputs, record.inputs).block_tables]


def _filled(table: SequenceOf[int]) -> list[int]:
    """A table without the -1 that make it as long as the others."""
    return [block for block in table if block >= 0]


def prefix_sharing() -> dict[str, Any]:
    """What `prefix_tree` draws: two requests join a running one that begins as they do."""
    with engine() as llm:
        ids = [llm.engine.add_request(SHARING[0], greedy(4))]
        llm.engine.step()
        ids += [llm.engine.add_request(prompt, greedy(4)) for prompt in SHARING[1:]]
        llm.engine.step()
        sharers = [_sharer(llm, llm.engine.requests[name].seq) for name in ids]
    return {"sharers": sharers, "block_size": BLOCK_SIZE}


def _sharer(llm: LLM, seq: Sequence) -> Sharer:
    """A sequence's prompt, and the blocks that hold it."""
    prompt = seq.token_ids[: seq.num_prompt_tokens]
    texts = [cast(Tokenizer, llm.engine.tokenizer).decode([token]) for token in prompt]
    blocks = -(-len(prompt) // BLOCK_SIZE)
    return Sharer(seq.block_table[:blocks], texts, seq.num_reused_tokens)


def kv_tensor() -> dict[str, Any]:
    """What `cache_binding` draws: the shape of the classroom model's cache, one block marked."""
    with engine(num_kvcache_blocks=6) as llm:
        return {"shape": list(llm.engine.runner.kv_cache.shape[1:]), "block": 3}


def five_steps() -> dict[str, Any]:
    """What `five_steps` draws: the prefill of two prompts."""
    records: list[StepRecord] = []
    with engine(records.append) as llm:
        llm.generate(RUN_PROMPTS, greedy(1), use_tqdm=False)
        decode = cast(Tokenizer, llm.engine.tokenizer).decode
        tokens = records[0].tokens
        return {
            "record": records[0],
            "hidden_size": llm.engine.model_config.hidden_size,
            "texts": ["" if token is None else decode([token]) for token in tokens],
        }
