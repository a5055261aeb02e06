"""Every config field that changes the result is honoured or refused by its name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nanoengine.errors import ModelError, ModelNotFound
from nanoengine.models.config import ModelConfig, read_model_config

BASE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}
LLAMA = {"architectures": ["LlamaForCausalLM"]}
WINDOW = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"]}


def read(tmp_path: Path, generation: dict[str, Any] | None = None, **fields: Any) -> ModelConfig:
    """The config of a folder with these fields; `...` leaves a field out."""
    content = {key: value for key, value in {**BASE, **fields}.items() if value is not ...}
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return read_model_config(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        (WINDOW, "sliding_window=32"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type='yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type='linear'"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rope_type='dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3.*lacks low_freq_factor"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"rope_theta": "big"}, "rope_theta='big'"),
        ({"rms_norm_eps": None}, "rms_norm_eps=None"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"dtype": "float8_e4m3fn"}, "dtype='float8_e4m3fn'"),
        ({"num_attention_heads": 3}, "num_attention_heads=3.*num_key_value_heads=2"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"vocab_size": "100"}, "vocab_size='100'"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers=2.0"),
        ({"head_dim": -16}, "head_dim=-16"),
        ({"head_dim": 15}, "head_dim=15"),
        ({"head_dim": "16"}, "head_dim='16'"),
        ({"eos_token_id": "</s>"}, "eos_token_id='</s>'"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*Qwen3ForCausalLM"),
        ({"architectures": ...}, "architectures=.*Qwen3ForCausalLM"),
        ({"architectures": "Qwen3ForCausalLM"}, "architectures='Qwen3ForCausalLM'"),
    ],
)  # fmt: skip
def test_refused_by_name(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named) as error:
        read(tmp_path, **fields)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"use_sliding_window": False, "sliding_window": 32, "max_window_layers": 1},
        {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2},
        {"use_sliding_window": True, "sliding_window": None},
        {"layer_types": ["full_attention", "full_attention"]},
        {"rope_scaling": None},
        {"rope_scaling": {"rope_type": "default"}},
        {"hidden_act": "swish"},
        {"attention_dropout": 0.1},
    ],
)
def test_settings_that_change_nothing_are_taken(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert read(tmp_path, **fields).rope_scaling is None


@pytest.mark.parametrize(
    ("fields", "flags"),  # qkv_bias, o_bias, mlp_bias, qk_norm
    [
        ({}, (False, False, False, True)),
        ({"attention_bias": True}, (True, True, False, True)),
        ({"attention_bias": True, "mlp_bias": True}, (True, True, False, True)),
        (QWEN2, (True, False, False, False)),
        ({**QWEN2, "attention_bias": False}, (True, False, False, False)),
        (LLAMA, (False, False, False, False)),
        ({**LLAMA, "attention_bias": True}, (True, True, False, False)),
        ({**LLAMA, "mlp_bias": True}, (False, False, True, False)),
    ],
)
def test_biases_do_not_depend_on_qk_norm(
    tmp_path: Path, fields: dict[str, Any], flags: tuple[bool, ...]
) -> None:
    config = read(tmp_path, **fields)
    assert (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm) == flags


@pytest.mark.parametrize(
    ("fields", "theta"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e6}}, 1e6),
        ({"rope_scaling": {"rope_theta": 3e3}}, 3e3),
    ],
)
def test_rope_theta(tmp_path: Path, fields: dict[str, Any], theta: float) -> None:
    assert read(tmp_path, **fields).rope_theta == theta


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling(tmp_path: Path, key: str) -> None:
    scaling = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    config = read(tmp_path, **LLAMA, **{key: {"rope_type": "llama3", **scaling}})
    assert config.rope_scaling is not None
    assert [getattr(config.rope_scaling, name) for name in scaling] == list(scaling.values())


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({}, torch.float32),
        ({"torch_dtype": "bfloat16"}, torch.bfloat16),
        ({"dtype": "torch.float16"}, torch.float16),
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, torch.bfloat16),
    ],
)
def test_dtype(tmp_path: Path, fields: dict[str, Any], dtype: torch.dtype) -> None:
    assert read(tmp_path, **fields).dtype == dtype


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        (7, None, (7,)),
        ([7, 8], None, (7, 8)),
        (7, {"eos_token_id": 9}, (9,)),
        (7, {"eos_token_id": [9, 10]}, (9, 10)),
        (7, {"temperature": 0.6}, (7,)),
        (..., {"eos_token_id": 9}, (9,)),
        (..., None, ()),
        (None, None, ()),
    ],
)
def test_generation_config_says_when_to_stop(
    tmp_path: Path, config: Any, generation: dict[str, Any] | None, ids: tuple[int, ...]
) -> None:
    assert read(tmp_path, generation, eos_token_id=config).eos_token_ids == ids


def test_llama_has_a_default_end_and_null_means_none(tmp_path: Path) -> None:
    assert read(tmp_path, **LLAMA).eos_token_ids == (2,)
    assert read(tmp_path, **LLAMA, eos_token_id=None).eos_token_ids == ()


@pytest.mark.parametrize("family", ["Qwen3", "Qwen2", "Llama"])
@pytest.mark.parametrize(
    "left_out",
    [["head_dim"], ["num_key_value_heads"], ["rms_norm_eps", "tie_word_embeddings"],
     ["intermediate_size", "max_position_embeddings"], ["vocab_size", "num_hidden_layers"]],
    ids="-".join,
)  # fmt: skip
def test_fields_left_out_are_what_transformers_makes_of_them(
    tmp_path: Path, family: str, left_out: list[str]
) -> None:
    """Older folders omit fields; a different default here would be a silent change."""
    import transformers

    heads = 32 if "num_key_value_heads" in left_out else 4
    fields = {**BASE, "architectures": [f"{family}ForCausalLM"], "num_attention_heads": heads}
    fields |= {"hidden_size": 64, **dict.fromkeys(left_out, ...)}
    ours = read(tmp_path, **fields)
    theirs = getattr(transformers, f"{family}Config").from_pretrained(tmp_path)
    for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                 "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
                 "rms_norm_eps", "tie_word_embeddings"):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // heads
    assert ours.head_dim == head_dim
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]


def test_no_key_value_heads_means_one_for_each_head(tmp_path: Path) -> None:
    assert read(tmp_path, num_key_value_heads=None).num_key_value_heads == 4


@pytest.mark.parametrize(
    ("content", "named"), [("{", "not valid JSON"), ("[1]", "holds a list"), ("\ud800", "JSON")]
)
def test_damaged_files_are_named(tmp_path: Path, content: str, named: str) -> None:
    for name in ("config.json", "generation_config.json"):
        read(tmp_path, {})
        (tmp_path / name).write_bytes(content.encode(errors="surrogatepass"))
        with pytest.raises(ModelError, match=f"{name}.*{named}"):
            read_model_config(tmp_path)


def test_no_config_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config.json: give a"):
        read_model_config(tmp_path)
