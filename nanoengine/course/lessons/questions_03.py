"""Lesson 03's questions: the article's self-check on the KV cache, answered by doing."""

import random
from typing import Any

from nanoengine.course.lessons.blocks_03 import Block
from nanoengine.course.lessons.counts_03 import MIB, Memory
from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion

# layers, kv heads, head_dim of real models, all kept in 2 bytes a number
_MODELS = {
    "Qwen3-0.6B": (28, 8, 128),
    "Qwen3-4B": (36, 8, 128),
    "Qwen3-32B": (64, 8, 128),
    "SmolLM2-135M": (30, 3, 64),
}
_BF16 = 2


def _draw_block(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(sorted(_MODELS))
    layers, heads, head_dim = _MODELS[name]
    size = rng.choice((16, 32, 64, 128, 256))
    return {"name": name, "layers": layers, "heads": heads, "dim": head_dim, "size": size}


def _block(drawn: dict[str, Any]) -> Block:
    return Block(drawn["layers"], drawn["size"], drawn["heads"], drawn["dim"], _BF16)


def _block_text(drawn: dict[str, Any]) -> str:
    return (
        f"{drawn['name']} has {drawn['layers']} layers and {drawn['heads']} kv heads of head_dim "
        f"{drawn['dim']}; its cache is in bfloat16. How many bytes does one KV block of "
        f"{drawn['size']} tokens take?"
    )


def _block_answer(drawn: dict[str, Any]) -> int:
    from nanoengine.engine.kv_cache import block_bytes

    return block_bytes(*_block(drawn))


def _why_block(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, int | float):
        return "give a number of bytes."
    right = _block_answer(drawn)
    if given * 2 == right:
        return "half of it: is it K and V that are two, or the two bytes of a bfloat16?"
    if given * drawn["layers"] == right:
        return "every layer has a cache of its own."
    if given * drawn["size"] == right:
        return "these are the bytes of one token; a block has more."
    if given * MIB == right or given * 1024 == right:
        return "right size, but the question asks for bytes."
    return "2 x layers x block size x kv heads x head_dim x bytes of a number."


def _draw_memory(rng: random.Random) -> dict[str, Any]:
    """A card with another process on it; every usual mistake gives another number of blocks."""
    current = rng.randrange(1200, 2000, 100)
    return {
        "total": 1024 * rng.choice((16, 24, 48, 80)),
        "others": 512 * rng.randint(4, 9),
        "context": 600,
        "current": current,
        "peak": current + rng.randrange(400, 1500, 100),
        "block": rng.choice((28, 36, 64)),
    }


def _memory(drawn: dict[str, Any]) -> Memory:
    used = drawn["others"] + drawn["context"] + drawn["current"]
    return Memory(
        total=drawn["total"] * MIB,
        used=used * MIB,
        peak=drawn["peak"] * MIB,
        current=drawn["current"] * MIB,
        block_bytes=drawn["block"] * MIB,
        utilization=0.9,
    )


def _memory_text(drawn: dict[str, Any]) -> str:
    return (
        f"A card has {drawn['total']} MiB. Another process takes {drawn['others']} MiB, your CUDA "
        f"context {drawn['context']} MiB. After the warm-up your allocator has "
        f"{drawn['current']} MiB in use and cached nothing else; its peak was {drawn['peak']} MiB. "
        f"A block takes {drawn['block']} MiB. How many blocks fit at utilization 0.9?"
    )


def _memory_answer(drawn: dict[str, Any]) -> int:
    from nanoengine.engine.kv_cache import num_kvcache_blocks

    return num_kvcache_blocks(*_memory(drawn))


def _why_memory(drawn: dict[str, Any], given: Any) -> str:
    memory = _memory(drawn)
    if given == (memory.share - memory.used - memory.peak) // memory.block_bytes:
        return "the whole peak is too much: what is current is in the used memory already."
    if given == (memory.share - memory.used) // memory.block_bytes:
        return "the peak comes back in every large prefill: keep peak - current free."
    if given == (memory.share - memory.current - memory.growth) // memory.block_bytes:
        return "the other process and the context are missing; the driver counts them as used."
    return "total x utilization - used - (peak - current), over the block size, rounded down."


QUESTIONS = (
    ChoiceQuestion(
        id="03.q.warm_up",
        text="Why does the warm-up run before the KV cache is allocated?",
        options=(
            Option(
                "It measures how much memory a step's activations need; the cache gets the rest.",
                "only what is left beside the largest step may be cut into blocks.",
                right=True,
            ),
            Option(
                "It compiles the kernels, so that the first request is fast.",
                "that is a welcome side effect; the order would not matter for it.",
            ),
            Option(
                "The cache must already hold K and V when the first request comes.",
                "the warm-up sequences own no blocks, so nothing is written anywhere.",
            ),
            Option(
                "The weights are loaded by it.",
                "they are there before: otherwise the warm-up could not run.",
            ),
        ),
        where="section 3, Warm-up first",
    ),
    ChoiceQuestion(
        id="03.q.peak",
        text="The formula takes off `used` and `peak - current`. Why not `used` and `peak`?",
        options=(
            Option(
                "The peak contains what is still allocated, and that is counted in `used`.",
                "the weights stand in both numbers; only the spike above them is still to come.",
                right=True,
            ),
            Option(
                "The peak never comes back after the warm-up.",
                "it does, in every large prefill; that is why the spike is kept free.",
            ),
            Option(
                "The allocator gives the peak back to the driver.",
                "if it does, `used` is smaller; the spike must still fit when it comes back.",
            ),
        ),
        where="section 4, How many blocks",
    ),
    ValueQuestion(
        id="03.q.block_bytes",
        draw=_draw_block,
        text=_block_text,
        answer=_block_answer,
        explain=_why_block,
        where="section 2, One block",
    ),
    ValueQuestion(
        id="03.q.blocks",
        draw=_draw_memory,
        text=_memory_text,
        answer=_memory_answer,
        explain=_why_memory,
        where="section 4, How many blocks",
    ),
    ChoiceQuestion(
        id="03.q.forgotten",
        text="A warm-up prefill of 4 long prompts measures the peak. What comes later and is in "
        "neither number of the formula?",
        options=(
            Option(
                "Captured graphs, and sampling for hundreds of rows at once.",
                "the warm-up samples 4 rows and captures nothing; a reserve must be kept for them.",
                right=True,
            ),
            Option(
                "The weights.",
                "they are loaded before the warm-up, so `used` holds them.",
            ),
            Option(
                "The activations of longer prompts.",
                "a step takes at most max_num_batched_tokens, and the warm-up used all of them.",
            ),
            Option(
                "Other processes that run already.",
                "`used` is the driver's number for the whole card: they are in it.",
            ),
        ),
        where="section 6, When it does not fit",
    ),
)
