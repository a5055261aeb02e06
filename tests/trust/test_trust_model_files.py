"""A damaged model folder: the engine works as transformers does, or says one thing and names it.

Relatives of what happens there elsewhere: nano-vllm #167, #189 (rope_scaling), #17, #69 (biases),
nanovllm-voxcpm #1 and vllm #30036 (missing weights), vllm #1867 and #51268 (ignored fields).
"""

import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from fuzz_tools import attempt, damaged_bytes, damaged_json, examples, replaced_file
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from nanoengine import LLM, SamplingParams
from nanoengine.errors import (
    ModelError,
    NanoengineError,
    NotEnoughMemory,
    RequestError,
    WeightsError,
)
from nanoengine.models.config import read_model_config
from nanoengine.tokenizer import Tokenizer

PROMPT = [1, 2, 3]
GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
ROPES: list[Any] = [
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "default", "rope_theta": 0},
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.0},
    {"type": "linear", "factor": 2.0},
    {"full_attention": {"rope_type": "default", "rope_theta": 77.0}},
    {"rope_type": "llama3", "factor": "x", "low_freq_factor": None, "high_freq_factor": 1,
     "original_max_position_embeddings": 0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
     "original_max_position_embeddings": 32},
]  # fmt: skip
FIELDS = ["attention_bias", "rope_scaling", "rope_theta", "layer_types", "quantization_config",
          "mlp_bias", "partial_rotary_factor", "use_sliding_window",
          "max_window_layers"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model with a tokenizer, this test's own."""
    return tiny_models.save(tmp_path, "qwen3", tokenizer=True)


def tokens(folder: Path) -> list[int]:
    """Greedy tokens of a fixed prompt, from a fresh engine."""
    with LLM(folder, device="cpu", num_kvcache_blocks=8) as llm:
        return llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids


def transformers_tokens(folder: Path) -> list[int] | None:
    """The same from transformers; None when it refuses the folder."""
    try:
        return tiny_models.Oracle(folder).greedy(PROMPT, GREEDY.max_tokens)
    except Exception:
        return None


def works_or_says(folder: Path, wanted: list[int], name: str) -> str:
    """Whether the folder works as transformers says, or is refused by the file's name."""
    found, message = attempt(lambda: tokens(folder))
    if message is not None:
        # a size that config.json gives wrongly shows in the weights
        assert name in message or str(folder) in message or "config.json" in message, message
        return "refused"
    if found != wanted:
        theirs = transformers_tokens(folder)
        # a smaller max_position_embeddings ends the output earlier
        assert theirs is None or found == theirs[: len(found)], (found, theirs)
        return "another model"
    return "the same"


def test_config_fields_that_are_odd(folder: Path) -> None:
    path, wanted = folder / "config.json", tokens(folder)
    fields = json.loads(path.read_text())
    seen: Counter[str] = Counter()

    @examples(400)
    @given(damaged_json(fields, ["silu", "gelu", "float16", *ROPES], FIELDS))
    def check(text: str) -> None:
        with replaced_file(path, text.encode()):
            seen[works_or_says(folder, wanted, "config.json")] += 1

    check()
    assert seen["refused"] > 100
    assert seen["the same"] > 20


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_json_files_that_are_cut_or_overwritten(folder: Path, name: str) -> None:
    path, wanted = folder / name, tokens(folder)

    @examples(120)
    @given(damaged_bytes(path.read_bytes()))
    def check(data: bytes) -> None:
        with replaced_file(path, data):
            works_or_says(folder, wanted, name)

    check()


def test_weights_that_are_cut_or_whose_header_is_overwritten(folder: Path) -> None:
    """safetensors has no checksum: a changed number inside a weight cannot be seen, all else is."""
    path, wanted = folder / "model.safetensors", tokens(folder)
    data = path.read_bytes()
    header = 8 + struct.unpack("<Q", data[:8])[0]

    @examples(300)
    @given(damaged_bytes(data, header))
    def check(changed: bytes) -> None:
        with replaced_file(path, changed):
            found, message = attempt(lambda: tokens(folder))
            assert message is not None or found == wanted

    check()


def test_tokenizer_values_that_are_odd(folder: Path) -> None:
    """Also those at which the tokenizers library panics, or aborts the process."""
    values = {
        n: json.loads((folder / n).read_text()) for n in ("tokenizer.json", "tokenizer_config.json")
    }
    odd: list[Any] = [
        {"content": "zz"}, {"content": 5}, [{"name": "default"}], {"x": {"content": "q"}},
        "{% for", "{{ x.y.z }}", {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": ""},
        "content": "aa"}, {"type": "Sequence", "normalizers": []},
    ]  # fmt: skip
    names = ["added_tokens_decoder", "extra_special_tokens", "additional_special_tokens",
             "chat_template", "bos_token", "eos_token", "normalizer", "decoder"]  # fmt: skip
    chats = [{"role": "user", "content": "hello"}]

    def use() -> None:
        with LLM(folder, device="cpu", num_kvcache_blocks=8) as llm:
            llm.generate("hello 🙂 wörld", GREEDY, use_tqdm=False)
            assert llm.engine.tokenizer is not None
            if llm.engine.tokenizer.has_chat_template:
                llm.engine.tokenizer.apply_chat_template(chats)

    strategy = st.sampled_from(sorted(values)).flatmap(
        lambda name: st.tuples(st.just(name), damaged_json(values[name], odd, names))
    )

    @examples(500)
    @given(strategy)
    def check(case: tuple[str, str]) -> None:
        with replaced_file(folder / case[0], case[1].encode()):
            attempt(use)

    check()


# What the strategies above found, and their relatives: each was a crash, a hang or a wrong output.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers=1000000000000 is beyond 1024"),
        ({"hidden_size": 10**30}, "hidden_size=10{30} is beyond"),
        ({"head_dim": 2**24}, "head_dim=16777216 is beyond 4096"),
        ({"layer_types": True}, "layer_types=True does not name 2 layers"),
        ({"layer_types": ["full_attention"]}, "does not name 2 layers"),
        ({"layer_types": None, "num_hidden_layers": "x"}, "num_hidden_layers='x'"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps=1000"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps=inf"),
        ({"tie_word_embeddings": "x"}, "tie_word_embeddings='x' is neither true nor false"),
        ({"attention_bias": 1}, "attention_bias=1 is neither"),
        ({"model_type": "llama"}, "architectures says Qwen3ForCausalLM, model_type says 'llama'"),
        # transformers obeys rope_scaling here, and whoever reads rope_parameters first does not
        ({"rope_scaling": ROPES[0]}, "'yarn'.*'default'.*not both|'default'.*'yarn'.*not both"),
        ({"rope_parameters": ROPES[5]}, "is not one plain object"),
        ({"rope_parameters": {**ROPES[6], "rope_theta": 1e4}}, "factor='x'"),
        ({"rope_parameters": ROPES[7]}, "high_freq_factor must be above"),
    ],
)  # fmt: skip
def test_what_no_model_has_is_refused_by_name(
    folder: Path, fields: dict[str, Any], message: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(ModelError, match=message):
        read_model_config(folder)


def test_a_model_too_large_for_this_machine_says_so(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 1 << 22)
    (folder / "config.json").write_text(json.dumps({**config, **sizes}))
    with pytest.raises(NotEnoughMemory, match=r"takes \d+ MiB, and cpu has no room.*smaller"):
        LLM(folder, device="cpu", num_kvcache_blocks=8)


def test_a_tied_head_must_be_the_embedding(tmp_path: Path) -> None:
    """transformers would use the head of the file; an engine that drops it gives other tokens."""
    folder = tiny_models.save(tmp_path, "qwen3")
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    with pytest.raises(WeightsError, match=r"ties lm_head.weight.*two different.*leave the head"):
        tokens(folder)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert tokens(folder) == transformers_tokens(folder)


def test_an_index_that_is_no_map_or_leads_elsewhere(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    for name in ([1], "x", {"a": "../other/model.safetensors"}, {"a": "/etc/passwd"}, {"a": 5}):
        index.write_text(json.dumps({"weight_map": name}))
        with pytest.raises(WeightsError, match="index"):
            tokens(folder)


def test_merges_without_their_prefix_do_not_end_the_process(folder: Path) -> None:
    """tokenizers slices inside of a character there, and aborts."""
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text())
    for prefix in ("x", "<|im_end|>", "é"):
        value["model"]["continuing_subword_prefix"] = prefix
        path.write_text(json.dumps(value))
        with pytest.raises(ModelError, match=r"tokenizer.json.*the merge"):
            Tokenizer(folder)


def test_a_panic_of_the_tokenizer_is_an_error_of_the_request(folder: Path) -> None:
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text())
    value["normalizer"] = {"type": "Replace", "pattern": {"String": ""}, "content": "aa"}
    path.write_text(json.dumps(value))
    with LLM(folder, device="cpu", num_kvcache_blocks=8) as llm:
        with pytest.raises(RequestError, match="cannot be encoded"):
            llm.generate("hello 🙂 wörld", GREEDY, use_tqdm=False)
        assert llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids


def test_a_tokenizer_with_more_tokens_than_the_model(folder: Path) -> None:
    """An id beyond the embedding is refused at the door, not found by the embedding."""
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text())
    letter = next(token for token in value["model"]["vocab"] if token == "h")
    value["model"]["vocab"][letter] = 2**31
    path.write_text(json.dumps(value))
    with (
        LLM(folder, device="cpu", num_kvcache_blocks=8) as llm,
        pytest.raises(RequestError, match=f"holds token {2**31}: ids of this model are 0..511"),
    ):
        llm.generate("h", GREEDY, use_tqdm=False)


def test_weights_that_are_not_numbers_are_still_only_tokens(
    folder: Path, make_llm: Callable[..., LLM]
) -> None:
    """NaN in a weight (a bad conversion): ids stay in the vocabulary and the engine lives."""
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    llm = make_llm(folder)
    for params in (GREEDY, SamplingParams(seed=1, max_tokens=4, top_p=0.9, top_k=3)):
        output = llm.generate(PROMPT, params, use_tqdm=False)[0]
        assert all(0 <= token < tiny_models.VOCAB for token in output.token_ids)
    assert llm.engine.stats()["free_blocks"] == llm.engine.stats()["num_blocks"]


def test_every_error_here_can_be_caught_as_one() -> None:
    for kind in (ModelError, WeightsError, RequestError, NotEnoughMemory):
        assert issubclass(kind, NanoengineError)
