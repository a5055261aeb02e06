"""Whole engines on the C kernels against the same engines in plain torch."""

import random

import pytest
import torch

from nanoengine import LLM, SamplingParams
from nanoengine.attention import reference
from nanoengine.course import swap
from nanoengine.engine import inputs
from nanoengine.engine.kv_cache import bind_kv_cache
from nanoengine.errors import EngineError
from nanoengine.kernels.native import decode
from nanoengine.kernels.native.cpu import CpuKernels
from nanoengine.layers import activation, sampler

KINDS = ["qwen3", "qwen3-bias", "qwen3-mha", "qwen2", "llama-bias", "llama3-rope"]
pytestmark = pytest.mark.usefixtures("kernels")  # skips without a compiler


def requests(count=9, longest=70):
    rng = random.Random(3)
    shared = [rng.randrange(500) for _ in range(20)]
    prompts = [
        shared[: 9 * (i % 3)] + [rng.randrange(500) for _ in range(1 + rng.randrange(longest))]
        for i in range(count)
    ]
    params = [
        SamplingParams(
            temperature=0.8 * (i % 2), seed=i, max_tokens=3 + 4 * i, ignore_eos=True,
            top_k=5 * (i % 4), min_tokens=2,
        )
        for i in range(count)
    ]  # fmt: skip
    return prompts, params


def outcome(llm, prompts, params):
    """Tokens of every request, the second time with what the first left in the prefix cache."""
    runs = [llm.generate(prompts, params, use_tqdm=False) for _ in range(2)]
    return [[out.token_ids for out in outs] for outs in runs]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_every_step(make_llm, checkpoint, kind):
    found = []
    for backend in ("native", "reference"):
        records = []
        llm = make_llm(
            checkpoint(kind), attention_backend=backend, on_step=records.append, overlap=False
        )
        prompts, params = requests(5)
        tokens = outcome(llm, prompts, params)
        found.append((tokens, [record.logits for record in records]))
        assert (llm.engine.runner.kernels is not None) == (backend == "native")
    (tokens, got), (want_tokens, want) = found
    assert tokens == want_tokens
    for a, b in zip(got, want, strict=True):
        assert (a - b).norm() / b.norm() < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 13, "max_num_seqs": 5},  # chunks that end inside a block
        {"num_kvcache_blocks": 40},  # preemptions
        {"kvcache_block_size": 16, "enable_prefix_caching": False, "overlap": False},
        {"enforce_eager": False, "max_num_seqs": 11, "max_model_len": 128},  # padded rows
        {"tensor_parallel_size": 2},
    ],
    ids=["plain", "chunks", "preempted", "large blocks", "graph double", "two ranks"],
)
def test_tokens_of_every_schedule(make_llm, checkpoint, options):
    prompts, params = requests()
    outs = [
        outcome(make_llm(checkpoint("qwen3"), attention_backend=name, **options), prompts, params)
        for name in ("native", "reference")
    ]
    assert outs[0] == outs[1]


@pytest.mark.parametrize(
    ("kind", "whole"), [("qwen3", True), ("qwen2", False), ("llama-bias", False), ("llama", True)]
)
def test_decode_steps_are_one_call_where_no_layer_has_a_bias(
    make_llm, checkpoint, monkeypatch, kind, whole
):
    done = []
    real = CpuKernels.decode_layers

    def seen(*args):
        done.append(real(*args) is not None)
        return real(*args)

    monkeypatch.setattr(CpuKernels, "decode_layers", seen)
    llm = make_llm(checkpoint(kind), attention_backend="native")
    llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)
    assert done == [False] + [whole] * 4  # the prefill, and every token but the first


@pytest.mark.parametrize("kind", ["qwen3", "qwen3-tied", "qwen3-mha", "llama3-rope"])
def test_one_call_is_what_the_layers_are(make_llm, checkpoint, monkeypatch, kind):
    """The same kernels in the same order: not a bit differs."""
    found = []
    for whole in (True, False):
        if not whole:
            monkeypatch.setattr(CpuKernels, "decode_layers", lambda *args: None)
        records = []
        llm = make_llm(checkpoint(kind), attention_backend="native", on_step=records.append)
        outcome(llm, *requests(7))
        found.append([record.logits for record in records])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_weights_and_caches_that_move_are_found(make_llm, checkpoint):
    llm = make_llm(checkpoint("qwen3"), attention_backend="native", enable_prefix_caching=False)
    runner = llm.engine.runner
    before = llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)[0].token_ids
    layers = runner.model.model.layers
    moved = runner.kv_cache.clone()
    runner.kv_cache.fill_(torch.nan)
    bind_kv_cache(runner.model, moved)
    for layer in layers:
        old = layer.mlp.down_proj.weight.data
        layer.mlp.down_proj.weight.data = old.clone()
        old.fill_(torch.nan)
    assert llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)[0].token_ids == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("slot_mapping", lambda table, start, end, size: [10**6], "slot 1000000 is beyond"),
        ("pad_block_tables", lambda tables: [[9999] for _ in tables], "block 9999"),
    ],
)
def test_a_wrong_number_in_a_decode_step_is_an_error(
    make_llm, checkpoint, monkeypatch, name, value, words
):
    llm = make_llm(checkpoint("qwen3"), attention_backend="native", overlap=False)
    llm.engine.add_request([1, 2, 3], _greedy())
    llm.engine.step()
    monkeypatch.setattr(inputs, name, value)
    with pytest.raises(EngineError, match=words):
        llm.engine.step()


def test_preemptions_happen(make_llm, checkpoint):
    llm = make_llm(checkpoint("qwen3"), attention_backend="native", num_kvcache_blocks=40)
    outcome(llm, *requests())
    assert llm.engine.stats()["preemptions"] > 0


def test_the_classroom_model_says_the_same():
    prompts = ["Once upon a time", "The dog", "What is a cat?", "Tell me about the sea. " * 8]
    greedy = SamplingParams(temperature=0, max_tokens=64)
    texts = []
    for name in ("native", "reference"):
        with LLM(device="cpu", dtype="float32", attention_backend=name) as llm:
            outs = llm.generate(prompts, greedy, use_tqdm=False)
            texts.append([out.text for out in outs])
    assert texts[0] == texts[1]


def test_auto_on_a_cpu(make_llm, checkpoint):
    names = {
        "float32": make_llm(checkpoint("qwen3")),
        "bfloat16": make_llm(checkpoint("qwen3"), dtype="bfloat16"),
        "graph double": make_llm(checkpoint("qwen3"), enforce_eager=False),
    }
    found = {name: llm.engine.runner.choice.name for name, llm in names.items()}
    assert found == {"float32": "native", "bfloat16": "reference", "graph double": "reference"}


def test_a_wrong_slot_in_the_engine_is_an_error(make_llm, checkpoint, monkeypatch):
    llm = make_llm(checkpoint("qwen3"), attention_backend="native")
    monkeypatch.setattr(inputs, "slot_mapping", lambda *args: [10**6] * (args[2] - args[1]))
    with pytest.raises(EngineError, match="slot 1000000 is beyond the KV cache of 2048 slots"):
        llm.generate([[1, 2, 3]], use_tqdm=False)


def test_a_wrong_block_in_the_engine_is_an_error(make_llm, checkpoint, monkeypatch):
    llm = make_llm(checkpoint("qwen3"), attention_backend="native")
    monkeypatch.setattr(inputs, "pad_block_tables", lambda tables: [[9999] for _ in tables])
    with pytest.raises(EngineError, match=r"block 9999, the KV cache has blocks 0\.\.511"):
        llm.generate([[1, 2, 3]], use_tqdm=False)


def test_layers_that_differ_go_one_by_one(make_llm, checkpoint):
    """The C function is told one number of blocks: a layer with fewer would be written beyond."""
    llm = make_llm(checkpoint("qwen3"))
    layers = llm.engine.runner.model.model.layers
    assert decode.stack_layers(layers) is not None
    attn = layers[-1].self_attn.attn
    attn.k_cache, attn.v_cache = attn.k_cache[:1], attn.v_cache[:1]
    assert decode.stack_layers(layers) is None
    with pytest.raises((EngineError, IndexError), match=r"slot|index"):
        llm.generate([list(range(1, 60))], _greedy(), use_tqdm=False)


class Reached(Exception):
    """Raised by a function that was swapped in."""


def raises(*args, **options):
    raise Reached


SWAPPED = ["00.hello", "02.store_kvcache", "02.attend", "06.sample"]


@pytest.mark.parametrize("exercise", SWAPPED)
@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_students_function_runs_in_the_kernels_place(make_llm, checkpoint, exercise, when):
    llm = make_llm(checkpoint("qwen3")) if when == "before" else None
    library = None if llm is None else llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)
    with swap(exercise, raises):
        inside = llm or make_llm(checkpoint("qwen3"))
        assert inside.engine.runner.kernels is None
        with pytest.raises(Reached):
            inside.generate([[1, 2, 3]], _greedy(), use_tqdm=False)
    if llm is not None:
        assert llm.engine.runner.choice.name == "native"
        assert llm.engine.runner.kernels is llm.engine.runner.choice.kernels
        assert llm.engine.runner.model.model.layers[0].mlp.kernels is not None
        assert llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)[0].token_ids == (
            library[0].token_ids
        )


def _greedy():
    return SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def test_other_swaps_leave_the_kernels_alone(make_llm, checkpoint):
    with swap("01.slot_mapping", _slots):
        llm = make_llm(checkpoint("qwen3"))
        assert llm.engine.runner.choice.name == "native"
        llm.generate([[1, 2, 3]], use_tqdm=False)


def _slots(table, start, end, size):
    return [table[i // size] * size + i % size for i in range(start, end)]


def test_a_swap_reaches_the_other_rank(make_llm, checkpoint):
    with swap("02.attend", reference.attend):
        llm = make_llm(checkpoint("qwen3"), tensor_parallel_size=2)
        assert llm.engine.runner.choice.name == "reference"
        assert llm.generate([[1, 2, 3]], _greedy(), use_tqdm=False)[0].token_ids


def test_threads_are_those_of_torch(make_llm, checkpoint):
    prompts, params = requests(6)
    outs = []
    for count in (1, 2):
        torch.set_num_threads(count)
        outs.append(
            outcome(make_llm(checkpoint("qwen3"), attention_backend="native"), prompts, params)
        )
    torch.set_num_threads(1)
    assert outs[0] == outs[1]


def test_the_torch_functions_are_untouched():
    """What lessons replace is still the library's own after all of the above."""
    for function in (reference.attend, activation.silu_and_mul, sampler.sample):
        assert function.__module__.startswith("nanoengine.")
