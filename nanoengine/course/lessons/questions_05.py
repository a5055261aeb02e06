"""Lesson 05's questions: the article's self-check on tensor parallelism, answered by doing."""

import random
from typing import Any

from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion

# hidden, intermediate, heads, kv heads, head_dim of real models
_MODELS = {
    "Qwen3-0.6B": (1024, 3072, 16, 8, 128),
    "Qwen3-4B": (2560, 9728, 32, 8, 128),
    "Qwen3-8B": (4096, 12288, 32, 8, 128),
    "Qwen3-32B": (5120, 25600, 64, 8, 128),
}
_WEIGHTS = ("qkv_proj", "gate_up_proj", "o_proj", "down_proj")
MIB = 1 << 20
_ID_BYTES = 5  # of a large token id in a pickled list: a mark and four bytes


def _draw_shape(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(sorted(_MODELS))
    return {"name": name, "weight": rng.choice(_WEIGHTS), "ranks": rng.choice((2, 4, 8))}


def _shape_text(drawn: dict[str, Any]) -> str:
    hidden, inner, heads, kv_heads, dim = _MODELS[drawn["name"]]
    return (
        f"{drawn['name']}: hidden {hidden}, intermediate {inner}, {heads} heads and {kv_heads} kv "
        f"heads of {dim}. Which shape [rows, columns] has a rank's {drawn['weight']}.weight at "
        f"tensor_parallel_size={drawn['ranks']}?"
    )


def _shape_answer(drawn: dict[str, Any]) -> list[int]:
    import torch

    from nanoengine.distributed.group import TPGroup
    from nanoengine.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear

    hidden, inner, heads, kv_heads, dim = _MODELS[drawn["name"]]
    group = TPGroup(0, drawn["ranks"])
    with torch.device("meta"):
        layers: dict[str, Any] = {
            "qkv_proj": QKVParallelLinear(hidden, heads, kv_heads, dim, False, group),
            "gate_up_proj": ColumnParallelLinear(hidden, [inner, inner], False, group),
            "o_proj": RowParallelLinear(heads * dim, hidden, False, group),
            "down_proj": RowParallelLinear(inner, hidden, False, group),
        }
    return list(layers[drawn["weight"]].weight.shape)


def _why_shape(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, list) or len(given) != 2:
        return "give two numbers, [rows, columns]."
    right = _shape_answer(drawn)
    rows = drawn["weight"] in ("qkv_proj", "gate_up_proj")
    if given == right[::-1]:
        return "a Linear's weight is [outputs, inputs]."
    if given[0] * given[1] == right[0] * right[1]:
        return "right size, but the other axis is cut."
    if drawn["weight"] == "gate_up_proj" and given == [right[0] // 2, right[1]]:
        return "gate and up are stacked, both are in it."
    which = "rows (its outputs)" if rows else "columns (its inputs)"
    return f"{drawn['weight']} is cut by {which}; the other axis stays whole."


def _draw_collectives(rng: random.Random) -> dict[str, Any]:
    return {"layers": rng.choice((8, 24, 28, 32, 36, 64))}


def _why_collectives(drawn: dict[str, Any], given: Any) -> str:
    if given == 2 * drawn["layers"]:
        return "the embedding is cut, too, and its parts must be summed."
    if given in (4 * drawn["layers"], 4 * drawn["layers"] + 1):
        return "not after every product: the column-parallel one leaves its outputs where they are."
    if given == drawn["layers"]:
        return "attention and MLP each end in a row-parallel product."
    return "one after o_proj and one after down_proj of every layer, and one for the embedding."


def _draw_message(rng: random.Random) -> dict[str, Any]:
    shared = rng.choice((3500, 3800, 4000))
    return {"prompts": 64, "shared": shared, "own": rng.choice((60, 80, 96))}


def _message_text(drawn: dict[str, Any]) -> str:
    return (
        f"{drawn['prompts']} prompts share a prefix of {drawn['shared']} tokens that is cached, "
        f"each adds {drawn['own']} of its own. A message holds every sequence's whole list, and "
        f"pickle takes {_ID_BYTES} bytes for an id above 65,535 (take that for all). How many MiB "
        "is that, rounded down to one decimal (as 3.4)? nano-vllm's buffer has 1 MiB."
    )


def _message_answer(drawn: dict[str, Any]) -> float:
    tokens = drawn["prompts"] * (drawn["shared"] + drawn["own"])
    return int(10 * tokens * _ID_BYTES / MIB) / 10


def _why_message(drawn: dict[str, Any], given: Any) -> str:
    if given == int(10 * drawn["prompts"] * drawn["own"] * _ID_BYTES / MIB) / 10:
        return "that is what must be computed; the whole list holds the cached tokens, too."
    return f"prompts x (shared + own) x {_ID_BYTES} bytes, over {MIB}, one decimal."


QUESTIONS = (
    ChoiceQuestion(
        id="05.q.pair",
        text="Why do gate_up_proj and down_proj together need only one all_reduce?",
        options=(
            Option(
                "A rank's outputs of the first are just the inputs that its part of the second "
                "needs; only the second's sums are incomplete.",
                "silu(gate) * up works element by element, so nothing is exchanged in between.",
                right=True,
            ),
            Option(
                "The first one's results are gathered when the second one reads them.",
                "nothing is gathered: a rank never sees the other ranks' inner features.",
            ),
            Option(
                "The all_reduce of attention already holds the first one's sums.",
                "it comes before: after it every rank has the whole hidden state, once.",
            ),
            Option(
                "Both are cut by rows, so their products can be added at the end.",
                "down_proj is cut by columns; cut by rows it would want all inner features.",
            ),
        ),
        where="section 2, Two ways to cut",
    ),
    ValueQuestion(
        id="05.q.shape",
        draw=_draw_shape,
        text=_shape_text,
        answer=_shape_answer,
        explain=_why_shape,
        where="section 2, Two ways to cut",
    ),
    ValueQuestion(
        id="05.q.collectives",
        draw=_draw_collectives,
        text=lambda d: (
            f"A model has {d['layers']} layers. How many all_reduce calls does one step make "
            "(with two ranks, up to the hidden states)?"
        ),
        answer=lambda d: 2 * d["layers"] + 1,
        explain=_why_collectives,
        where="section 4, The vocabulary",
    ),
    ChoiceQuestion(
        id="05.q.bias",
        text="o_proj of some models has a bias. Every rank keeps all of it. Who adds it?",
        options=(
            Option(
                "Rank 0 alone, before the all_reduce.",
                "the sum then holds it once, on every rank.",
                right=True,
            ),
            Option(
                "Every rank, before the all_reduce.",
                "the sum would hold it once a rank: twice with two.",
            ),
            Option(
                "Nobody: a row-parallel product has no bias.",
                "it has one wherever the model does; leaving it out changes the logits.",
            ),
            Option(
                "Every rank adds its own part of it.",
                "its axis is the output axis, which a row-parallel layer does not cut.",
            ),
        ),
        where="section 3, Reading only its part",
    ),
    ChoiceQuestion(
        id="05.q.rank_0",
        text="What does rank 0 alone do in this engine?",
        options=(
            Option(
                "Schedule, keep the block tables and the tokenizer, join the logits, sample.",
                "the others get a batch as numbers, run their part and hand on their parts of "
                "logits.",
                right=True,
            ),
            Option(
                "Load the weights and send the others their shards.",
                "every rank reads its own shards from disk; nothing of them crosses a socket.",
            ),
            Option(
                "Run attention; the others run the linear layers.",
                "every rank attends, with its own heads and its own part of the KV cache.",
            ),
            Option(
                "Run prefill; the others run decode.",
                "all ranks run every step: each has only a part of every layer.",
            ),
        ),
        where="section 5, Who tells whom",
    ),
    ChoiceQuestion(
        id="05.q.same_step",
        text="How do the workers come to run the same step as rank 0 (self-check of the article)?",
        options=(
            Option(
                "Rank 0 writes it into shared memory and rings; each worker wakes, reads it and "
                "calls the same method; then rank 0 calls it, too.",
                "one writer, several readers, and a bell for each of them.",
                right=True,
            ),
            Option(
                "Each worker has a scheduler of its own, and they come to the same result.",
                "they could drift apart; one scheduler decides for all.",
            ),
            Option(
                "The workers ask rank 0 after each layer what comes next.",
                "between layers they only meet in collectives, whose order the model fixes.",
            ),
            Option(
                "NCCL broadcasts the batch to all ranks.",
                "collectives carry tensors on the device; what to run is told before, on the host.",
            ),
        ),
        where="section 5, Who tells whom",
    ),
    ValueQuestion(
        id="05.q.overflow",
        draw=_draw_message,
        text=_message_text,
        answer=_message_answer,
        explain=_why_message,
        where="section 9, What goes wrong",
    ),
    ChoiceQuestion(
        id="05.q.overwrite",
        text="Rank 0 has a second message, and a worker has not yet read the first. What keeps "
        "rank 0 from writing over it in this engine?",
        options=(
            Option(
                "Before every piece rank 0 waits until each worker has said that it is idle.",
                "read *and* done: so a message can also not meet the wrong collective.",
                right=True,
            ),
            Option(
                "The Event that rank 0 sets.",
                "an Event says that there is something; not that it was read.",
            ),
            Option(
                "The sequence number in the header.",
                "it shows that a message was lost; it does not bring it back.",
            ),
            Option(
                "The collectives of a step: rank 0 cannot be ahead of them.",
                "true for a step; but some calls have no collective, and those are lost.",
            ),
        ),
        where="section 9, What goes wrong",
    ),
    ChoiceQuestion(
        id="05.q.pickle",
        text="Why int32 values and a fixed header, rather than pickle?",
        options=(
            Option(
                "Whoever can write to the memory could run code in the workers; and a message's "
                "size is known before it is sent.",
                "numbers can be wrong, but they cannot be a program.",
                right=True,
            ),
            Option(
                "Sequences cannot be pickled.",
                "they can, nano-vllm does it; that is not the trouble.",
            ),
            Option(
                "pickle needs the GIL.",
                "so does packing integers here.",
            ),
            Option(
                "Both ends must be written in Python for pickle.",
                "they are in both cases.",
            ),
        ),
        where="section 9, What goes wrong",
    ),
)
