"""From safetensors files into a model: every weight read once, none missed, none left over."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from nanoengine.errors import NotEnoughMemory, WeightsError
from nanoengine.layers.linear import TensorSource
from nanoengine.models.config import read_json

_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")  # safetensors' names
_COMPUTED = "rotary_emb.inv_freq"  # a table that older Llama files carry; computed here
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_ROWS = 8192  # compared at a time
_SHOWN = 8  # names listed in an error before "and N more"


def weight_files(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor: {checkpoint name: path}.

    Raises WeightsError when there are no safetensors, or a shard is missing or damaged.
    """
    if (folder / _INDEX).is_file():
        names = read_json(folder / _INDEX).get("weight_map") or {}
        if not isinstance(names, dict):
            raise WeightsError(f"{folder / _INDEX}: weight_map is no object: fetch the model again")
        paths = sorted({_inside(folder, str(file)) for file in names.values()})
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise WeightsError(
            f"{folder} holds no *.safetensors: convert the model to safetensors, or give the "
            "folder that has them"
        )
    found: dict[str, Path] = {}
    for path in paths:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118  (safe_open is no mapping)
                if name in found:
                    raise WeightsError(f"{name} is in both {found[name].name} and {path.name}")
                found[name] = path
    return found


def load_weights(model: nn.Module, folder: Path) -> None:
    """Fill the model's parameters, each rank reading only its own shards from disk.

    The model's `packed_modules` say which checkpoint projections are stacked in one layer.
    Raises WeightsError listing missing, unknown and wrongly shaped weights.
    """
    files = weight_files(folder)
    # a checkpoint of a tied model may carry the head again: it must be the embedding
    if model.lm_head.weight is model.model.embed_tokens.weight:  # type: ignore[union-attr]
        if {_HEAD, _EMBEDDING} <= files.keys() and not _same_rows(files):
            raise WeightsError(
                f"{folder}: config.json ties {_HEAD} to {_EMBEDDING}, but the files hold two "
                "different ones: set tie_word_embeddings to false, or leave the head out"
            )
        files.pop(_HEAD, None)
    for name in [name for name in files if name.endswith(_COMPUTED)]:
        del files[name]
    expected = dict(expected_tensors(model))
    _refuse_names("missing", sorted(expected.keys() - files.keys()), folder)
    _refuse_names("unknown", sorted(files.keys() - expected.keys()), folder)
    for name, (module, param, part) in expected.items():
        # One mapping a tensor: its pages leave memory before the next tensor is read.
        with _opened(files[name]) as file:
            source = file.get_slice(name)
            shape = module.source_shape(param, part)
            if source.get_shape() != shape:
                raise WeightsError(
                    f"{files[name].name}: {name} has shape {source.get_shape()}, but config.json "
                    f"makes it {shape}: weights and configuration are of different models"
                )
            if source.get_dtype() not in _FLOATS:
                raise WeightsError(
                    f"{files[name].name}: {name} holds {source.get_dtype()}, not one of "
                    f"{', '.join(_FLOATS)}: give the unquantised weights of this model"
                )
            module.load(param, cast(TensorSource, source), part)


def expected_tensors(model: nn.Module) -> Iterator[tuple[str, tuple[Any, str, int]]]:
    """(checkpoint name, (module, "weight" or "bias", part)) for every tensor the model wants."""
    parts: dict[str, list[tuple[str, int]]] = {}
    packed = cast(dict[str, tuple[str, int]], model.packed_modules)
    for ours, (packed_name, part) in packed.items():
        parts.setdefault(packed_name, []).append((ours, part))
    for full_name, _ in model.named_parameters():  # a tied head is not listed twice
        path, _, param = full_name.rpartition(".")
        parent, _, leaf = path.rpartition(".")
        module = model.get_submodule(path)
        for source, part in parts.get(leaf, [(leaf, 0)]):
            yield f"{parent}.{source}.{param}".lstrip("."), (module, param, part)


def _refuse_names(kind: str, names: list[str], folder: Path) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise WeightsError(
            f"{folder}: {len(names)} {kind} weights: {', '.join(names[:_SHOWN])}{more}; "
            "the files do not belong to this config.json"
        )


def _inside(folder: Path, name: str) -> Path:
    """A shard's path; an index that points out of the folder is refused."""
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise WeightsError(f"{folder / _INDEX} names {name!r}, which is no file of this folder")
    return path


def _same_rows(files: dict[str, Path]) -> bool:
    """Whether the head in the files equals the embedding; a few rows at a time are in memory."""
    at, rows = 0, _ROWS
    while rows == _ROWS:
        parts = []
        for name in (_HEAD, _EMBEDDING):
            with _opened(files[name]) as file:
                parts.append(file.get_slice(name)[at : at + _ROWS])
        if not torch.equal(*parts):
            return False
        at, rows = at + _ROWS, len(parts[0])
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, opened; every reading error becomes one WeightsError."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path} is damaged or cut short ({error}): fetch the model again"
        ) from error


def build_model(model_class: Any, dtype: torch.dtype, device: torch.device, *args: Any) -> Any:
    """A model with uninitialised parameters of `dtype` on `device`; memory is taken only once.

    Raises NotEnoughMemory, with the size, when the device has not enough.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            model = model_class(*args)
    finally:
        torch.set_default_dtype(default)
    made: dict[nn.Parameter, nn.Parameter] = {}  # a tied weight is made once
    for module in model.modules():
        for name, old in module.named_parameters(recurse=False):
            if old not in made:
                made[old] = nn.Parameter(_empty(old, device), requires_grad=False)
            setattr(module, name, made[old])
    # buffers hold computed values already (the rotary table, always float32)
    return model.to(device).eval()


def _empty(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    try:
        return torch.empty(like.shape, dtype=like.dtype, device=device)
    except RuntimeError as error:
        size = like.numel() * like.itemsize >> 20
        raise NotEnoughMemory(
            f"a weight of shape {tuple(like.shape)} takes {size} MiB, and {device} has no room "
            f"for it: use a smaller model, or see whether config.json is right"
        ) from error
