"""A Hugging Face `config.json`: every field that changes the result is honoured or refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nanoengine.errors import ModelError, ModelNotFound
from nanoengine.layers.rotary import Llama3Scaling

_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
          "num_attention_heads", "max_position_embeddings")  # fmt: skip
# No real model is beyond: a damaged size is refused before it takes memory.
_LARGEST = 1 << 22
_LIMITS = {"num_hidden_layers": 1 << 10, "num_attention_heads": 1 << 12, "head_dim": 1 << 12}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers that define one decoder-only model; names are those of `config.json`.

    The flags say what the architecture leaves open: which projections have a bias (`qkv_bias`,
    `o_bias`, `mlp_bias`) and whether queries and keys are normalised per head (`qk_norm`).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    dtype: torch.dtype
    eos_token_ids: tuple[int, ...]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ModelError when it is damaged or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON ({error}): fetch the model again") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}, not an object: fetch it again")
    return value


def read_model_config(folder: Path) -> ModelConfig:
    """Read `config.json` (and `generation_config.json` for the stop tokens) of a model folder.

    Raises ModelNotFound without a config, ModelError naming the field that cannot be honoured.
    """
    from nanoengine.models.registry import family_of

    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(f"{folder} holds no config.json: give a Hugging Face model folder")
    raw = read_json(path)
    architecture, family = family_of(raw, path)
    fields = {**family.defaults, **raw}  # an explicit null stays: it means "none", not the default
    sizes = {name: _positive(fields, name, path) for name in _SIZES}
    _refuse(fields, sizes["num_hidden_layers"], path)
    heads = sizes["num_attention_heads"]
    if fields.get("num_key_value_heads") is None:
        fields["num_key_value_heads"] = heads
    kv_heads = _positive(fields, "num_key_value_heads", path)
    if heads % kv_heads:
        raise ModelError(
            f"{path}: num_attention_heads={heads} is not a multiple of "
            f"num_key_value_heads={kv_heads}"
        )
    if fields.get("head_dim") is None:
        fields["head_dim"] = sizes["hidden_size"] // heads
    head_dim = _positive(fields, "head_dim", path)
    if head_dim % 2:
        raise ModelError(f"{path}: head_dim={head_dim} is odd: rotary embedding turns pairs")
    attention_bias = _flag(fields, "attention_bias", path)
    theta, scaling = _rope(fields, path)
    return ModelConfig(
        architecture=architecture,
        **sizes,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=_number(fields, "rms_norm_eps", 1e-6, path),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=_flag(fields, "tie_word_embeddings", path),
        qkv_bias=family.always_qkv_bias or attention_bias,
        o_bias=attention_bias and not family.always_qkv_bias,
        mlp_bias=family.has_mlp_bias and _flag(fields, "mlp_bias", path),
        qk_norm=family.qk_norm,
        dtype=_dtype(fields, path),
        eos_token_ids=_eos_token_ids(fields, folder),
    )


def _positive(fields: dict[str, Any], name: str, path: Path) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{path}: {name}={value!r} is not a positive integer")
    limit = _LIMITS.get(name, _LARGEST)
    if value > limit:
        raise ModelError(f"{path}: {name}={value} is beyond {limit}: fetch the model again")
    return value


def _flag(fields: dict[str, Any], name: str, path: Path) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise ModelError(f"{path}: {name}={value!r} is neither true nor false")
    return bool(value)


def _number(fields: dict[str, Any], name: str, default: float, path: Path) -> float:
    value = fields.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < torch.finfo(torch.float32).max:
        raise ModelError(f"{path}: {name}={value!r} is not a positive number")
    return float(value)


def _refuse(fields: dict[str, Any], layers: int, path: Path) -> None:
    """Raise for every setting that would change the result and is not computed here."""
    activation = fields.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelError(f"{path}: hidden_act={activation!r} is not computed here: only 'silu'")
    if fields.get("quantization_config"):
        raise ModelError(
            f"{path}: quantization_config is set: give the unquantised weights of this model"
        )
    types = fields.get("layer_types") or ["full_attention"] * layers
    if not isinstance(types, list) or len(types) != layers:
        raise ModelError(f"{path}: layer_types={types!r:.80} does not name {layers} layers")
    window, first = fields.get("sliding_window"), fields.get("max_window_layers") or 0
    if not isinstance(first, int):
        raise ModelError(f"{path}: max_window_layers={first!r} is not an integer")
    windowed = _flag(fields, "use_sliding_window", path) and window and first < layers
    other = sorted({str(kind) for kind in types} - {"full_attention"})
    if windowed or other:
        raise ModelError(
            f"{path}: sliding_window={window} with layer_types {other or ['sliding_attention']} "
            "is not computed here: only full attention"
        )


def _rope(fields: dict[str, Any], path: Path) -> tuple[float, Llama3Scaling | None]:
    """Rotary base and scaling, from `rope_parameters` (transformers 5) or the two older fields."""
    rope: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        value = fields.get(name) or {}
        if not isinstance(value, dict) or any(isinstance(v, dict) for v in value.values()):
            raise ModelError(f"{path}: {name}={value!r:.80} is not one plain object")
        for key, setting in value.items():
            key = "rope_type" if key == "type" else key
            if rope.setdefault(key, setting) != setting:
                raise ModelError(
                    f"{path}: {name} has {key}={setting!r}, before it was {rope[key]!r}: keep "
                    "rope_parameters or rope_scaling, not both"
                )
    theta = _number({**fields, **rope}, "rope_theta", 10000.0, path)
    kind = rope.get("rope_type") or "default"
    partial = rope.get("partial_rotary_factor") or fields.get("partial_rotary_factor") or 1.0
    if partial != 1.0:
        raise ModelError(f"{path}: partial_rotary_factor={partial} is not computed here: only 1")
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ModelError(
            f"{path}: rope_type={kind!r} is not computed here: only 'default' and 'llama3'"
        )
    names = Llama3Scaling.__dataclass_fields__
    missing = [name for name in names if name not in rope]
    if missing:
        raise ModelError(f"{path}: rope_type 'llama3' lacks {', '.join(missing)}")
    scaling = {name: _number(rope, name, 0.0, path) for name in names}
    if scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ModelError(f"{path}: high_freq_factor must be above low_freq_factor: {scaling}")
    return theta, Llama3Scaling(**{name: rope[name] for name in names})


def _dtype(fields: dict[str, Any], path: Path) -> torch.dtype:
    name = str(fields.get("dtype") or fields.get("torch_dtype") or "float32")
    dtype = _DTYPES.get(name.removeprefix("torch."))
    if dtype is None:
        raise ModelError(f"{path}: dtype={name!r} is not known: use one of {', '.join(_DTYPES)}")
    return dtype


def _eos_token_ids(fields: dict[str, Any], folder: Path) -> tuple[int, ...]:
    """Token ids that end a text: `generation_config.json` decides, `config.json` otherwise."""
    path = folder / "generation_config.json"
    value = read_json(path).get("eos_token_id") if path.is_file() else None
    if value is None:
        value, path = fields.get("eos_token_id"), folder / "config.json"
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise ModelError(f"{path}: eos_token_id={value!r} holds {token!r}, not a token id")
    return tuple(ids)
