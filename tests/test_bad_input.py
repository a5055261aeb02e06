"""Bad input: one clear error that names value, limit and remedy; nothing else is harmed."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import MAX_LEN, VOCAB, random_prompts

from nanoengine import SamplingParams
from nanoengine.errors import ConfigError, ModelError, ModelNotFound, NanoengineError, RequestError
from nanoengine.llm import LLM

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
POOL = 20  # blocks of 4


@pytest.fixture
def llm(text_model: Path, make_llm: Callable[..., LLM]) -> LLM:
    """A model with a tokenizer and a small pool."""
    return make_llm(text_model, num_kvcache_blocks=POOL)


@pytest.fixture
def tokens_before(llm: LLM) -> list[int]:
    """What a good prompt gives before anything went wrong."""
    return llm.generate([1, 2, 3], GREEDY, use_tqdm=False)[0].token_ids


def assert_unharmed(llm: LLM, tokens_before: list[int]) -> None:
    """The engine is empty, has all its blocks, and gives the same tokens as before."""
    engine = llm.engine
    stats = engine.stats()
    assert stats["waiting"] == stats["running"] == 0
    assert stats["free_blocks"] == stats["num_blocks"] == POOL
    assert not engine.requests
    assert llm.generate([1, 2, 3], GREEDY, use_tqdm=False)[0].token_ids == tokens_before


BAD_PROMPTS: dict[str, tuple[Any, str]] = {
    "empty text": ("", "holds no tokens: give at least one"),
    "no ids": ([[]], "holds no tokens"),
    "id too large": ([1, VOCAB], f"holds token {VOCAB}: ids of this model are 0..{VOCAB - 1}"),
    "negative id": ([3, -1], "holds token -1: ids"),
    "float id": ([[1, 2.0]], r"holds 2\.0: give integer token ids"),
    "float among ids": ([1, 2.5], "prompt"),
    "text id": ([["1"]], "holds '1': give integer"),
    "bool id": ([[True, 1]], "holds True: give integer"),
    "None": (None, "None"),
    "number": (5, "5"),
    "None among prompts": ([None], "None"),
    "bytes": (b"abc", "bytes"),
    "a dictionary": ({"prompt": "hi"}, "dict"),
    "longer than the pool": ([1] * (4 * POOL + 1), f"{4 * POOL + 1} tokens, the KV pool is"),
    "longer than the model": ([1] * (MAX_LEN + 1), f"{MAX_LEN + 1} tokens, max_model_len is"),
    "no text": ("a\ud800", "cannot be encoded"),
}


@pytest.mark.parametrize(("prompt", "message"), BAD_PROMPTS.values(), ids=BAD_PROMPTS)
def test_bad_prompts(llm: LLM, tokens_before: list[int], prompt: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llm.generate(prompt, GREEDY, use_tqdm=False)
    assert_unharmed(llm, tokens_before)


@pytest.mark.parametrize("name", ["no ids", "float id", "longer than the pool", "no text"])
def test_a_bad_prompt_is_found_before_its_neighbours_run(
    llm: LLM, tokens_before: list[int], name: str
) -> None:
    bad, message = BAD_PROMPTS[name]
    bad = bad[0] if isinstance(bad[0], list) else bad
    with pytest.raises(RequestError, match=f"prompt 1: .*{message}"):
        llm.generate([[1, 2], bad, [3]], GREEDY, use_tqdm=False)
    assert_unharmed(llm, tokens_before)


def test_a_bad_request_does_not_disturb_running_ones(llm: LLM, tokens_before: list[int]) -> None:
    engine = llm.engine
    running = engine.output(engine.add_request([1, 2, 3], GREEDY))
    engine.step()
    for bad, message in BAD_PROMPTS.values():
        if isinstance(bad, list) and isinstance(bad[0], list):
            with pytest.raises(RequestError, match=message):
                engine.add_request(bad[0], GREEDY)
            engine.step()
    engine.add_request([1], GREEDY, request_id="r")
    with pytest.raises(RequestError, match="in use: choose another"):
        engine.add_request([1], GREEDY, request_id="r")
    engine.abort("r")
    while engine.has_unfinished:
        engine.step()
    assert running.token_ids == tokens_before
    assert_unharmed(llm, tokens_before)


@pytest.mark.parametrize(
    "ids", [np.array([1, 2, 3]), torch.tensor([1, 2, 3]), (1, 2, 3), range(1, 4)], ids=repr
)
def test_integers_of_every_kind_are_fine(llm: LLM, tokens_before: list[int], ids: Any) -> None:
    """Arrays of ids, as one prompt and as one of many."""
    for prompts in (ids, [ids]):
        output = llm.generate(prompts, GREEDY, use_tqdm=False)
        assert [out.token_ids for out in output] == [tokens_before]


BAD_SAMPLING: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, f"{name}={value!r} is not a finite number")
      for name in ("temperature", "top_p", "min_p") for value in (math.nan, math.inf, None, "1")),
    ({"temperature": -0.1}, r"temperature=-0.1 is outside \[0.0, inf\]: use 0 for greedy"),
    ({"top_p": 0.0}, r"top_p=0.0 is outside \(0.0, 1.0\]: use 1"),
    ({"top_p": 1.1}, "top_p=1.1 is outside"),
    ({"min_p": -0.5}, "min_p=-0.5 is outside"),
    ({"min_p": 2}, "min_p=2 is outside"),
    ({"top_k": -2}, "top_k=-2 is below -1: use 0"),
    ({"top_k": 1.5}, "top_k=1.5 is not an integer"),
    *(({"max_tokens": value}, f"max_tokens={value!r} .*at least one token")
      for value in (0, -1, None, 1.5, True)),
    ({"min_tokens": -1}, "min_tokens=-1 is below 0"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens=9 is above max_tokens=8: raise"),
    ({"seed": 1.0}, "seed=1.0 is not an integer"),
    ({"seed": 2**64}, f"seed={2**64} does not fit 64 bits"),
    ({"seed": -(2**63) - 1}, "seed=.* is below"),
    ({"ignore_eos": 1}, "ignore_eos=1 is not a bool"),
    ({"stop": ""}, "holds '': use non-empty strings"),
    ({"stop": ["a", 5]}, "holds 5"),
    ({"stop": 5}, "stop=5"),
    ({"stop_token_ids": [-1]}, "stop_token_ids=-1 is below 0"),
    ({"stop_token_ids": [1.0]}, "stop_token_ids=1.0 is not an integer"),
    ({"stop_token_ids": 5}, "stop_token_ids=5"),
    ({"temprature": 0.5}, "temprature=0.5: did you mean 'temperature'"),
    ({"best_of": 2}, "best_of=2: known: temperature"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD_SAMPLING, ids=lambda value: str(value)[:40])
def test_bad_sampling_params(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        SamplingParams(**options)


def test_sampling_params_that_do_not_match(llm: LLM, tokens_before: list[int]) -> None:
    with pytest.raises(RequestError, match="3 sampling_params for 2 prompts: give one for all"):
        llm.generate([[1], [2]], [GREEDY] * 3, use_tqdm=False)
    for wrong in (5, {"temperature": 0}, [None], "greedy"):
        with pytest.raises(RequestError, match="SamplingParams"):
            llm.generate([[1]], wrong, use_tqdm=False)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"stop_token_ids holds token {VOCAB}"):
        llm.generate([1], SamplingParams(stop_token_ids=[VOCAB]), use_tqdm=False)
    assert_unharmed(llm, tokens_before)


def test_text_without_a_tokenizer(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    llm = make_llm(checkpoint("qwen3"))
    with pytest.raises(RequestError, match="no tokenizer: give the prompt as token ids"):
        llm.generate("hello", GREEDY, use_tqdm=False)
    with pytest.raises(RequestError, match=r"stop=.* needs a tokenizer"):
        llm.generate([1], SamplingParams(stop="x"), use_tqdm=False)


@pytest.mark.parametrize(
    ("options", "prompt", "wanted"),
    [
        ({"max_model_len": 16}, 10, 6),
        ({"max_model_len": 16}, 15, 1),
        ({"max_model_len": 16}, 16, 0),  # nothing fits: no error, no token
        ({"num_kvcache_blocks": 3}, 10, 3),  # 12 slots; the last token needs none
        ({"num_kvcache_blocks": 3}, 12, 1),
        ({"num_kvcache_blocks": 3}, 1, 12),
        ({}, 10, 30),
    ],
)
@pytest.mark.parametrize("graphs", [False, True])
def test_too_long_an_output_ends_with_length(
    text_model: Path,
    make_llm: Callable[..., LLM],
    options: dict[str, int],
    prompt: int,
    wanted: int,
    graphs: bool,
) -> None:
    llm = make_llm(text_model, enforce_eager=not graphs, **options)
    params = SamplingParams(max_tokens=30, ignore_eos=True, seed=0)
    long, short = llm.generate([[5] * prompt, [7]], params, use_tqdm=False)
    assert long.finish_reason == "length"
    assert len(long.token_ids) == wanted
    assert len(short.token_ids) >= min(30, wanted)
    assert llm.engine.stats()["free_blocks"] == llm.engine.stats()["num_blocks"]


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"max_num_seq": 8}, "max_num_seq=8: did you mean 'max_num_seqs'"),
    ({"colour": "red"}, "unknown option colour='red': known: model"),
    *(({name: value}, f"{name}={value!r} is not a positive integer: use 1 or more")
      for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len",
                   "num_kvcache_blocks", "max_prefill_tokens", "kvcache_block_size")
      for value in (0, -3, 2.0, "4", True)),
    *(({"kvcache_block_size": value}, f"kvcache_block_size={value} is not a power of two of at")
      for value in (2, 12, 100)),
    *(({"gpu_memory_utilization": value}, "gpu_memory_utilization=.* 0.9")
      for value in (0, 1.5, math.nan, "much")),
    ({"gpu_reserve_bytes": -1}, "gpu_reserve_bytes=-1"),
    ({"gpu_reserve_bytes": "x"}, "gpu_reserve_bytes='x'"),
    ({"device": "tpu"}, "device='tpu' is not known: use one of auto, cpu, cuda"),
    ({"dtype": "int8"}, "dtype='int8' is not known: use one of auto, float32"),
    ({"attention_backend": "magic"}, "attention_backend='magic' is not known"),
    ({"attention_backend": "flash_attn", "kvcache_block_size": 128},
     "kvcache_block_size=128 is not a multiple of 256, .*: use 256, or another backend"),
    ({"overlap": 1}, "overlap=1 is not a bool"),
    ({"enforce_eager": "no"}, "enforce_eager='no' is not a bool"),
    ({"max_model_len": MAX_LEN + 1}, f"max_model_len={MAX_LEN + 1} .*={MAX_LEN}: use at most"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_bad_engine_options(text_model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM(text_model, **{"device": "cpu", **options})


def test_models_that_are_none(tmp_path: Path, text_model: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match=r"no config.json.*give"):
        LLM(tmp_path / "empty")
    with pytest.raises(ModelNotFound, match=r"no folder.*smollm2"):
        LLM(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(ModelError, match=r"BertModel.*use one of Qwen3ForCausalLM"):
        LLM(tmp_path / "other")


def test_all_of_these_are_errors_of_nanoengine() -> None:
    """One except clause catches them; and they are the builtin kinds that callers expect."""
    assert issubclass(RequestError, NanoengineError)
    assert issubclass(RequestError, ValueError)
    assert issubclass(ModelNotFound, FileNotFoundError)


def test_a_prompt_as_long_as_the_pool_does_not_block_the_next(llm: LLM) -> None:
    outputs = llm.generate(random_prompts([4 * POOL, 2]), GREEDY, use_tqdm=False)
    assert [len(output.token_ids) for output in outputs] == [1, 6]
