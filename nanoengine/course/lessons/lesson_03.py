"""Lesson 03, KV carving: from free memory to blocks, and from one tensor to every layer."""

from nanoengine.course.lessons import binding_03, blocks_03, counts_03
from nanoengine.course.lessons.questions_03 import QUESTIONS
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "KV carving"
_HOME = "nanoengine.engine.kv_cache"

EXERCISES = (
    Exercise(
        id="03.block_bytes",
        target=f"{_HOME}:block_bytes",
        title="The price of a block",
        level="small",
        minutes=10,
        points=1,
        hints=(
            "Think of one token first: in every layer it leaves a K vector and a V vector for "
            "every kv head. A block holds block_size tokens.",
            "A product of whole numbers: 2 (K and V), the layers, the tokens, the kv heads this "
            "rank keeps, head_dim, the bytes of a number. Only the kv heads depend on tp.",
            "heads = max(1, num_kv_heads // tp); return 2 * num_layers * block_size * heads * "
            "head_dim * itemsize.",
        ),
        where="section 2, One block",
        cases=blocks_03.block_cases,
        compare=blocks_03.compare_bytes,
        scenarios=("carved pool",),
    ),
    Exercise(
        id="03.num_kvcache_blocks",
        target=f"{_HOME}:num_kvcache_blocks",
        title="How many blocks fit",
        names=("NotEnoughMemory",),
        helpers=("_mib",),
        level="core",
        minutes=20,
        points=4,
        hints=(
            "Start from what the engine may fill: a part, utilization, of the whole card. Take off "
            "everything that is there now, whoever put it there. Then keep room for what is not "
            "there now but will come: the activation spike, and the reserve.",
            "The budget is int(total * utilization) minus three things: used, peak - current, "
            "reserve. The answer is how many whole blocks go into the budget. Less than one block "
            "is an error, NotEnoughMemory, with all the numbers in its message.",
            "budget = int(total * utilization) - used - (peak - current) - reserve; if budget < "
            'block_bytes: raise NotEnoughMemory(f"total {total}, used {used}, ..."); return '
            "budget // block_bytes.",
        ),
        where="section 4, How many blocks",
        cases=counts_03.count_cases,
        observe=counts_03.count_or_refusal,
        compare=counts_03.compare_count,
        draw=counts_03.draw_count,
        scenarios=("carved pool",),
    ),
    Exercise(
        id="03.bind_kv_cache",
        target=f"{_HOME}:bind_kv_cache",
        title="One tensor, many layers",
        names=("Attention",),
        level="core",
        minutes=15,
        points=3,
        hints=(
            "The memory exists already, as one tensor. Binding only tells each layer which part is "
            "its own: plain indexing gives a view of it, without a copy.",
            "Walk over model.modules() and keep the Attention modules: they come in the order of "
            "the layers. Layer i gets kv_cache[0, i] as k_cache and kv_cache[1, i] as v_cache. If "
            "there are more or fewer of them than the cache has layers, raise ValueError.",
            "layers = [m for m in model.modules() if isinstance(m, Attention)]; compare "
            "len(layers) with kv_cache.shape[1]; for index, layer in enumerate(layers): "
            "layer.k_cache = kv_cache[0, index]; the same for v_cache with 1.",
        ),
        where="section 5, One tensor",
        cases=binding_03.binding_cases,
        arguments=binding_03.binding_arguments,
        observe=binding_03.observe_binding,
        compare=binding_03.compare_binding,
        draw=binding_03.draw_binding,
        scenarios=("carved pool", "chunks", "prefix", "buckets"),
    ),
)
