"""From what a user calls a model to the folder it lies in."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from nanoengine.cache import cache_dir
from nanoengine.classroom import ClassroomModelError, classroom_folder
from nanoengine.errors import ModelNotFound
from nanoengine.fetch import FETCHABLE, SMOLLM2, fetch, find_problem

__all__ = ["cache_dir", "list_models", "resolve_model"]

CONFIG_FILE = "config.json"
# What is downloaded from a hub: never code, never pickled weights.
HUB_PATTERNS = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REMEDY = (
    "give the path of a model folder, a hub id such as Qwen/Qwen3-0.6B, "
    f"{SMOLLM2!r}, or no model at all for the classroom model"
)


def resolve_model(model: str | os.PathLike[str] | None) -> Path:
    """The local folder of a model, downloaded first if it has to be.

    In this order: None is the classroom model that ships with the package; a str that
    `nanoengine fetch` knows ("smollm2"; "./smollm2" is a folder) is fetched on first use; an
    existing path is taken as it is; "org/name" is looked up on the Hugging Face hub and in its
    local cache.

    Raises ModelNotFound, saying what was tried, and FetchError when fetching fails.
    """
    if model is None:
        return _classroom_or_smollm2()
    if isinstance(model, str) and model in FETCHABLE:
        return _checked_folder(fetch(model))
    path = Path(model).expanduser()
    if path.exists():
        return _checked_folder(path)
    if isinstance(model, str) and _HUB_ID.fullmatch(model) and not model.startswith("."):
        return _checked_folder(_from_hub(model))
    raise ModelNotFound(f"there is no folder {str(path.absolute())!r}; {_REMEDY}")


def list_models() -> list[tuple[str, Path]]:
    """Models that can be used without a download, as (name, folder); downloads nothing."""
    found = []
    with suppress(ClassroomModelError):
        found.append(("classroom", classroom_folder()))
    fetched = ((name, cache_dir(create=False) / name) for name in FETCHABLE)
    return found + [(name, folder) for name, folder in fetched if find_problem(folder) is None]


def _classroom_or_smollm2() -> Path:
    try:
        return classroom_folder()
    except ClassroomModelError as error:
        print(f"nanoengine: {error}; using {SMOLLM2} instead", file=sys.stderr, flush=True)
        return _checked_folder(fetch(SMOLLM2))


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        raise ModelNotFound(f"{str(path)!r} is a file, a model is a folder; {_REMEDY}")
    if not (path / CONFIG_FILE).is_file():
        raise ModelNotFound(f"the folder {str(path)!r} has no {CONFIG_FILE}; {_REMEDY}")
    return path


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(HUB_PATTERNS)))
    except Exception as error:  # offline, unknown, gated, no room: the hub has many exceptions
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelNotFound(
            f"{name!r} is no folder here and could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {reason[0]}); {_REMEDY}"
        ) from error
