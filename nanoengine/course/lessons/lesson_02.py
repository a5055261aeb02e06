"""Lesson 02, Context: the operators' implicit parameters, and the two operators that read them."""

from nanoengine.course.lessons import attends_02, context_02, stores_02
from nanoengine.course.lessons.questions_02 import QUESTIONS
from nanoengine.course.lessons.tensors import call_with_tensors
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "Context"
_REFERENCE = "nanoengine.attention.reference"
_SCENARIOS = ("warm-up", "chunks", "prefix", "buckets", "small pool")
_KERNEL = '''
@triton.jit
def _store(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slot_ptr, k_stride, v_stride,
    ROW: tl.constexpr, BLOCK: tl.constexpr,
):
    """One program a token: copy ROW = kv_heads * head_dim numbers of k and v into its slot."""
    token = tl.program_id(0)
    # your kernel: load the slot, leave when it is negative, copy two rows
'''

EXERCISES = (
    Exercise(
        id="02.use_context",
        target="nanoengine.context:use_context",
        title="A scope for the context",
        level="small",
        minutes=10,
        points=2,
        names=("_state", "EngineError"),
        hints=(
            "get_context reads _state.current. Inside the block it must be this step's context, "
            "afterwards nothing, however the block is left: at its end, by an exception, by "
            "Ctrl-C.",
            "Three parts. Before: is one in use already? Then refuse, and touch nothing. Inside: "
            "set it and yield it. After: reset it in a finally. The refusal stands before the try.",
            "if _state.current is not None: raise EngineError(...); _state.current = context; "
            "try: yield context; finally: _state.current = None",
        ),
        where="section 2, A scope",
        cases=context_02.use_cases,
        observe=context_02.observe_use,
        compare=context_02.compare_use,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="02.store_kvcache",
        target=f"{_REFERENCE}:store_kvcache",
        title="Writing K and V",
        level="core",
        minutes=15,
        points=3,
        hints=(
            "The cache is one row of slots if you look at it that way: block and offset together "
            "are one number. Row i of k goes to slot slot_mapping[i]; a negative slot is nowhere.",
            "cache.flatten(0, 1), or view(-1, kv_heads, head_dim), is the same memory as "
            "[slots, kv_heads, head_dim]. Keep the rows whose slot is not negative, of k, v and "
            "the slots alike, before you index.",
            "keep = slot_mapping >= 0; slots = slot_mapping[keep].long(); "
            "k_cache.flatten(0, 1)[slots] = k[keep]; the same for v. Or a loop over "
            "enumerate(slot_mapping.tolist()) with `if slot < 0: continue`.",
        ),
        where="section 4, Writing",
        helpers=("_store_plan",),
        cases=stores_02.reference_cases,
        arguments=stores_02.store_arguments,
        observe=stores_02.observe_store,
        compare=stores_02.compare_store,
        draw=stores_02.draw_store,
        scenarios=_SCENARIOS,
        captured=True,
    ),
    Exercise(
        id="02.attend",
        target=f"{_REFERENCE}:attend",
        title="Reading: attention over fresh keys and over the cache",
        level="core",
        minutes=45,
        points=6,
        names=("F",),
        helpers=("_causal", "_decode"),
        hints=(
            "One sequence at a time. Find its rows of q; find its keys and values: this step's "
            "rows of k and v when there are no block tables, else the slots of positions 0, 1, ... "
            "in the cache. Then plain causal attention. Decode is the case of one query.",
            "With n queries and m keys, query i sees keys 0 to m - n + i: the diagonal is aligned "
            "at the end. Query heads h of a group share kv head h // (heads // kv_heads). In "
            "decode m is context_lens[i]; gather only those slots, and leave a row with m = 0.",
            "position = torch.arange(m); slots = table[position // block_size] * block_size + "
            "position % block_size; keys = k_cache.flatten(0, 1)[slots].repeat_interleave(groups, "
            "dim=1); scores = torch.einsum('nhd,mhd->hnm', q_i, keys) * scale; "
            "scores.masked_fill_(position > m - n + torch.arange(n)[:, None], -torch.inf); "
            "out[rows] = torch.einsum('hnm,mhd->nhd', scores.softmax(-1), values)",
        ),
        where="section 5, Reading",
        cases=attends_02.attend_cases,
        arguments=attends_02.attend_arguments,
        observe=call_with_tensors,
        compare=attends_02.compare_attend,
        scenarios=_SCENARIOS,
        captured=True,
    ),
    Exercise(
        id="02.store_kvcache_triton",
        target="nanoengine.kernels.store:store_kvcache",
        title="Writing K and V, as a Triton kernel",
        level="bonus",
        minutes=30,
        points=3,
        names=("triton", "tl"),
        helpers=("_store_kvcache",),
        preamble=_KERNEL,
        needs=("triton",),
        also=(f"{_REFERENCE}:store_kvcache",),
        hints=(
            "One program a token: a grid of len(k) programs. Each loads its slot, leaves when it "
            "is negative, and copies one row of K and one of V.",
            "Row i of k begins k.stride(0) numbers after row i - 1: it may be a slice of a wider "
            "tensor. In the cache, slot s begins at s * ROW. tl.arange needs a power of two, so "
            "take BLOCK = triton.next_power_of_2(ROW) columns and mask those beyond ROW.",
            "slot = tl.load(slot_ptr + token).to(tl.int64); if slot < 0: return; "
            "column = tl.arange(0, BLOCK); inside = column < ROW; "
            "tl.store(k_cache_ptr + slot * ROW + column, tl.load(k_ptr + token * k_stride + "
            "column, mask=inside), mask=inside); the same for v. "
            "Launch: _store[(len(k),)](k, v, k_cache, v_cache, slot_mapping, k.stride(0), "
            "v.stride(0), ROW=row, BLOCK=triton.next_power_of_2(row)), if there is a token.",
        ),
        where="section 6, The same in Triton",
        cases=stores_02.kernel_cases,
        arguments=stores_02.store_arguments,
        observe=stores_02.observe_store,
        compare=stores_02.compare_store,
        draw=stores_02.draw_store,
        scenarios=("chunks",),
        captured=True,
    ),
)
