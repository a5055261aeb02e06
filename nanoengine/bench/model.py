"""The one model that all engines of a benchmark load, each in its own way."""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nanoengine.bench.shapes import fill_transformers
from nanoengine.config import DTYPES
from nanoengine.dummy_weights import random_tensor

LONGEST = 4096  # max_model_len of the article's benchmark


class Model(NamedTuple):
    """What all engines of a benchmark load.

    folder: a Hugging Face folder; without weight files when weight_seed says how to draw them.
    dtype: its name, as in EngineConfig. max_model_len: prompt and output tokens of a request.
    """

    name: str
    folder: Path
    weight_seed: int | None
    device: torch.device
    dtype: str
    max_model_len: int

    @property
    def load_options(self) -> dict[str, Any]:
        """What an engine is told of the weights: nothing, or how to draw them."""
        if self.weight_seed is None:
            return {}
        return {"load_format": "dummy", "dummy_seed": self.weight_seed}


def load_transformers(model: Model) -> Any:
    """The same weights in transformers, on the same device and in the same dtype.

    Its generation defaults are empty: what a call leaves open, an end-of-text token say, would
    be filled in from there.
    """
    hf = importlib.import_module("transformers")
    hf.utils.logging.disable_progress_bar()  # it would stand in a notebook for good
    options = {"dtype": DTYPES[model.dtype], "attn_implementation": "sdpa"}
    if model.weight_seed is None:
        loaded = hf.AutoModelForCausalLM.from_pretrained(
            model.folder, local_files_only=True, **options
        ).to(model.device)
    else:
        config = hf.AutoConfig.from_pretrained(model.folder, local_files_only=True)
        with model.device:
            loaded = hf.AutoModelForCausalLM.from_config(config, **options)
        fill_transformers(loaded, model.weight_seed)
    loaded.generation_config = hf.GenerationConfig()
    return loaded.eval()


def with_weight_files(model: Model) -> Path:
    """The model's folder, random weights written to disk first, for engines that load files."""
    if model.weight_seed is None or any(model.folder.glob("*.safetensors")):
        return model.folder
    from safetensors.torch import save_file

    hf = importlib.import_module("transformers")
    config = hf.AutoConfig.from_pretrained(model.folder, local_files_only=True)
    with torch.device("meta"):
        empty = hf.AutoModelForCausalLM.from_config(config)
    drawn = {
        name: random_tensor(
            name, list(p.shape), DTYPES[model.dtype], model.device, model.weight_seed
        ).cpu()
        for name, p in empty.named_parameters()  # a tied head is not listed twice
    }
    save_file(drawn, model.folder / "model.safetensors", metadata={"format": "pt"})
    return model.folder
