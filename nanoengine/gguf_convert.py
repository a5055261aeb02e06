"""A GGUF file of a Llama model, rewritten as the folder that Hugging Face and we read.

GGUF is llama.cpp's one-file format: weights in blocks of a few bits, tokenizer and
hyperparameters as metadata. Hugging Face wants `model.safetensors` and four JSON files.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nanoengine.errors import FetchError

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

Half = npt.NDArray[np.float16]

# llama.cpp's tensor names -> Hugging Face's; those of one layer follow "blk.<layer>.".
_WHOLE_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Which count of heads shapes the rows of a rotated projection.
_ROTATED = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
_SAFETENSORS_ALIGNMENT = 8


def require_gguf() -> None:
    """Raise FetchError, naming the extra to install, when the `gguf` package is missing."""
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise FetchError(
            f'converting needs the package gguf ({error}): pip install "nanoengine[fetch]"'
        ) from error


def convert_gguf(source: Path, folder: Path) -> None:
    """Write the Llama model of `source` into the existing `folder`, weights in float16.

    The weights are converted one tensor at a time, so memory peaks at a few copies of the
    largest one: for SmolLM2, whose embedding is 49,152 x 576, the process grows to 435 MB.
    Raises FetchError for another architecture or an unknown tensor.
    """
    from gguf import GGUFReader

    metadata = _Metadata(GGUFReader(source))
    _write_weights(metadata, folder / "model.safetensors")
    tokens = {"bos_token_id": metadata["tokenizer.ggml.bos_token_id"]}
    tokens["eos_token_id"] = metadata["tokenizer.ggml.eos_token_id"]
    _write_json(folder / "config.json", _llama_config(metadata) | tokens)
    _write_json(folder / "generation_config.json", tokens)
    _write_tokenizer(metadata, folder)


def unpermute(weight: Half, num_heads: int) -> Half:
    """Undo llama.cpp's interleaving of the rotary halves in q and k rows, [heads * dim, hidden].

    llama.cpp rotates neighbouring rows (0, 1), (2, 3), ...; Hugging Face rotates row i with
    row i + dim / 2. So within each head rows 0, 2, 4, ... come first, then 1, 3, 5, ...
    """
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[-1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


class _Metadata:
    """The GGUF's key-value pairs as Python values; "llama.x" can be asked for as "x"."""

    def __init__(self, reader: "GGUFReader") -> None:
        self.reader = reader
        if (architecture := self["general.architecture"]) != "llama":
            raise FetchError(f"the GGUF holds a {architecture!r} model; only 'llama' is converted")

    def __getitem__(self, key: str) -> Any:
        field = self.reader.fields.get(key) or self.reader.fields.get(f"llama.{key}")
        if field is None:
            raise FetchError(f"the GGUF lacks {key!r}: it is damaged or of another kind")
        return field.contents()


def _llama_config(metadata: _Metadata) -> dict[str, Any]:
    epsilon = np.float32(metadata["attention.layer_norm_rms_epsilon"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": metadata["vocab_size"],
        "hidden_size": metadata["embedding_length"],
        "intermediate_size": metadata["feed_forward_length"],
        "num_hidden_layers": metadata["block_count"],
        "num_attention_heads": metadata["attention.head_count"],
        "num_key_value_heads": metadata["attention.head_count_kv"],
        "head_dim": metadata["rope.dimension_count"],
        "hidden_act": "silu",
        "max_position_embeddings": metadata["context_length"],
        "rope_theta": metadata["rope.freq_base"],
        "rms_norm_eps": float(str(epsilon)),  # 1e-05, not 9.999999747378752e-06
        # llama.cpp writes "output.weight" only for models with a head of their own.
        "tie_word_embeddings": all(t.name != "output.weight" for t in metadata.reader.tensors),
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float16",
    }


def _hugging_face_name(name: str) -> tuple[str, str]:
    """("model.layers.3.self_attn.q_proj.weight", "attn_q") for "blk.3.attn_q.weight"."""
    match name.split("."):
        case [part, "weight"] if part in _WHOLE_MODEL:
            return f"{_WHOLE_MODEL[part]}.weight", part
        case ["blk", layer, part, "weight"] if part in _PER_LAYER:
            return f"model.layers.{layer}.{_PER_LAYER[part]}.weight", part
    raise FetchError(f"the GGUF has a tensor {name!r} that this converter does not know")


def _tensor_to_half(metadata: _Metadata, tensor: "ReaderTensor") -> Half:
    from gguf import dequantize

    _, part = _hugging_face_name(tensor.name)
    weight: Half = dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
    if part in _ROTATED:
        weight = unpermute(weight, metadata[_ROTATED[part]])
    return np.ascontiguousarray(weight)


def _write_weights(metadata: _Metadata, path: Path) -> None:
    """A safetensors file by hand: 8 bytes of header length, the JSON header, then the data.

    `safetensors.save_file` wants all tensors at once; the format is simple enough to write
    as we go (https://huggingface.co/docs/safetensors, "Format").
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in metadata.reader.tensors:
        start, end = end, end + int(tensor.n_elements) * np.dtype(np.float16).itemsize
        header[_hugging_face_name(tensor.name)[0]] = {
            "dtype": "F16",
            "shape": [int(size) for size in reversed(tensor.shape)],  # GGUF: fastest axis first
            "data_offsets": [start, end],
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _SAFETENSORS_ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for tensor in metadata.reader.tensors:
            file.write(_tensor_to_half(metadata, tensor).astype("<f2", copy=False).data)


def _write_tokenizer(metadata: _Metadata, folder: Path) -> None:
    from gguf import TokenType
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise FetchError(f"the GGUF's tokenizer is {kind}; only ('gpt2', 'smollm') is converted")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata["context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }
    for name, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        config[f"{name}_token"] = tokens[metadata[f"tokenizer.ggml.{key}_token_id"]]
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
