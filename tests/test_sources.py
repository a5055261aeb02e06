"""What a user calls a model leads to its folder, or to one error that says what to do."""

from pathlib import Path

import pytest

from nanoengine import sources
from nanoengine.classroom import ClassroomModelError
from nanoengine.errors import ModelNotFound
from nanoengine.fetch import MANIFEST, SMOLLM2
from nanoengine.sources import list_models, resolve_model


def make_folder(path):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """A working directory, a cache and a hub of the test's own, all empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "cache"))

    def offline(*_, **__):
        raise ConnectionError("Name or service not known\nand a second line")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)


def test_a_folder(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "org" / "model")
    assert resolve_model(folder) == folder
    assert resolve_model(str(folder)) == folder
    assert resolve_model("org/model") == Path("org/model")  # goes before the hub
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/org/model") == folder


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "nothing", "./model", "../model", "./org/model", "a/b/c"]
)
def test_a_path_that_leads_nowhere(name):
    with pytest.raises(ModelNotFound, match=r"there is no folder.*give the path") as raised:
        resolve_model(name)
    assert Path(name).name in str(raised.value)


def test_a_file(tmp_path):
    (tmp_path / "model.gguf").write_text("", encoding="utf-8")
    with pytest.raises(ModelNotFound, match=r"model\.gguf' is a file, a model is a folder"):
        resolve_model("model.gguf")


def test_a_folder_without_a_config(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match=r"empty' has no config\.json"):
        resolve_model("empty")


def test_hub(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "snapshot")
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve_model("Qwen/Qwen3-0.6B") == folder
    (patterns,) = asked.values()
    wanted = ("config.json", "model-00001-of-2.safetensors", "chat_template.jinja", "merges.txt")
    refused = ("pytorch_model.bin", "modeling_x.py", "model.pt", "x.pkl")
    assert all(any(Path(name).match(p) for p in patterns) for name in wanted)
    assert not any(Path(name).match(p) for name in refused for p in patterns)


def test_hub_offline():
    with pytest.raises(ModelNotFound) as raised:
        resolve_model("Qwen/Qwen3-0.6B")
    message = str(raised.value)
    assert "'Qwen/Qwen3-0.6B' is no folder here" in message
    assert "Name or service not known" in message
    assert "second line" not in message
    assert "give the path of a model folder" in message
    assert "classroom model" in message


def test_hub_without_a_config(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        resolve_model("org/data")


def test_a_name_to_fetch(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "fetched")
    monkeypatch.setattr(sources, "fetch", lambda name: folder if name == SMOLLM2 else None)
    assert resolve_model(SMOLLM2) == folder
    local = make_folder(tmp_path / SMOLLM2)
    assert resolve_model(f"./{SMOLLM2}") == Path(SMOLLM2)
    assert resolve_model(local) == local


def no_classroom():
    raise ClassroomModelError("classroom model: config.json is missing")


def test_no_name_is_the_classroom_model(tmp_path, monkeypatch, capsys):
    folder = make_folder(tmp_path / "classroom")
    monkeypatch.setattr(sources, "classroom_folder", lambda: folder)
    monkeypatch.setattr(sources, "fetch", lambda _: pytest.fail("fetched"))
    assert resolve_model(None) == folder
    assert list_models() == [("classroom", folder)]
    assert capsys.readouterr().err == ""


def test_without_the_classroom_model(tmp_path, monkeypatch, capsys):
    folder = make_folder(tmp_path / "fetched")
    monkeypatch.setattr(sources, "classroom_folder", no_classroom)
    monkeypatch.setattr(sources, "fetch", lambda _: folder)
    assert resolve_model(None) == folder
    assert "config.json is missing; using smollm2 instead" in capsys.readouterr().err


def test_list_models(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "classroom_folder", no_classroom)
    assert list_models() == []
    assert not (tmp_path / "cache").exists()
    folder = make_folder(tmp_path / "cache" / SMOLLM2)
    assert list_models() == []  # half a folder is no model
    (folder / MANIFEST).write_text('{"files": {}}', encoding="utf-8")
    assert list_models() == [(SMOLLM2, folder)]


@pytest.mark.model
def test_smollm2_is_found(monkeypatch):
    monkeypatch.delenv("NANOENGINE_CACHE")
    folder = resolve_model(SMOLLM2)
    assert (SMOLLM2, folder) in list_models()
    assert (folder / "model.safetensors").is_file()
