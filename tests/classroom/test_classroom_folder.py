"""The shipped files: all there, unharmed, small, and one clear error when not."""

import json
import shutil
from pathlib import Path

import pytest

from nanoengine.classroom import ClassroomModelError, classroom_folder, folder, verify_folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(classroom_folder(), tmp_path / "model"))


def test_shipped_folder_is_whole_and_at_most_20_mb() -> None:
    verify_folder(classroom_folder())
    sizes = [p.stat().st_size for p in classroom_folder().iterdir()]
    assert 10_000_000 < sum(sizes) <= folder.SIZE_LIMIT_BYTES


def test_manifest_lists_every_file_but_itself() -> None:
    names = {p.name for p in classroom_folder().iterdir()} - {folder.MANIFEST}
    assert set(json.loads((classroom_folder() / folder.MANIFEST).read_text())) == names
    assert set(folder.MODEL_FILES) <= names


@pytest.mark.parametrize("name", [*folder.MODEL_FILES, folder.MANIFEST])
def test_missing_file_is_named_with_the_remedy(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ClassroomModelError, match=rf"{name} is missing; install nanoengine again"):
        verify_folder(copy)


def test_classroom_folder_itself_looks_for_missing_files(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "__file__", str(copy.parent / "folder.py"))
    assert classroom_folder() == copy
    (copy / "model.safetensors").write_bytes(b"")
    with pytest.raises(ClassroomModelError, match=r"model\.safetensors is empty; install"):
        classroom_folder()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "MODEL_CARD.md"])
def test_one_changed_byte_is_found(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(ClassroomModelError, match=rf"{name} is damaged .* expected"):
        verify_folder(copy)


def test_manifest_that_is_not_json_or_forgets_a_file(copy: Path) -> None:
    manifest = json.loads((copy / folder.MANIFEST).read_text())
    del manifest["config.json"]
    (copy / folder.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ClassroomModelError, match=r"does not list config\.json"):
        verify_folder(copy)
    (copy / folder.MANIFEST).write_text("{")
    with pytest.raises(ClassroomModelError, match="is not JSON"):
        verify_folder(copy)
