"""Where the shipped model is, and whether all of it is there and unharmed."""

import hashlib
import json
from pathlib import Path

from nanoengine.errors import NanoengineError

MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
MANIFEST = "manifest.json"
SIZE_LIMIT_BYTES = 20_000_000
_REMEDY = (
    "install nanoengine again (`pip install --force-reinstall --no-deps nanoengine`), or train "
    "it anew as described in nanoengine/classroom/model/MODEL_CARD.md"
)


class ClassroomModelError(NanoengineError, RuntimeError):
    """A file of the classroom model is missing or not the one that was shipped."""


def classroom_folder() -> Path:
    """Folder of the model that ships with the package, in Hugging Face format.

    Looks only whether every file is there (fast); `verify_folder` also reads them. Raises
    ClassroomModelError naming the first missing file and the remedy.
    """
    folder = Path(__file__).resolve().parent / "model"
    require_files(folder)
    return folder


def require_files(folder: Path) -> None:
    """Raise ClassroomModelError when a file that loading needs is missing or empty."""
    for name in (*MODEL_FILES, MANIFEST):
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            state = "empty" if path.is_file() else "missing"
            raise ClassroomModelError(f"classroom model: {path} is {state}; {_REMEDY}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_manifest(folder: Path) -> None:
    """Write `manifest.json`: the sha256 of every other file in the folder."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    manifest = {path.name: _sha256(path) for path in files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def verify_folder(folder: Path) -> None:
    """Read every file of the folder and compare its sha256 with the manifest.

    Raises ClassroomModelError naming the first file that is missing or differs.
    """
    require_files(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        message = f"classroom model: {folder / MANIFEST} is not JSON ({error}); {_REMEDY}"
        raise ClassroomModelError(message) from error
    unlisted = [name for name in MODEL_FILES if name not in manifest]
    if unlisted:
        raise ClassroomModelError(
            f"classroom model: {folder / MANIFEST} does not list {unlisted[0]}; {_REMEDY}"
        )
    for name, expected in manifest.items():
        path = folder / name
        if not path.is_file():
            raise ClassroomModelError(f"classroom model: {path} is missing; {_REMEDY}")
        found = _sha256(path)
        if found != expected:
            raise ClassroomModelError(
                f"classroom model: {path} is damaged (sha256 {found}, expected {expected}); "
                f"{_REMEDY}"
            )
