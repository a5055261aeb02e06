"""Compiling, caching and loading; and every way in which that can go wrong."""

import os
import stat
import subprocess
import sys

import pytest

from nanoengine.attention.base import choose_backend
from nanoengine.commands import doctor
from nanoengine.errors import ConfigError
from nanoengine.kernels.native import build

import torch  # isort: skip

CPU = torch.device("cpu")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache; nothing that another test has built is remembered."""
    if build.load_library().library is None:
        pytest.skip("no compiler here")
    monkeypatch.setenv("NANOENGINE_CACHE", str(tmp_path / "cache"))
    build.load_library.cache_clear()
    yield tmp_path / "cache" / "kernels"
    build.load_library.cache_clear()


def compiler(monkeypatch, tmp_path, script):
    """A C compiler of our own."""
    path = tmp_path / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))


def count_compilations(monkeypatch):
    made = []
    monkeypatch.setattr(
        build, "_compile", lambda *a, real=build._compile: made.append(1) or real(*a)
    )
    return made


def load_again():
    build.load_library.cache_clear()
    return build.load_library()


def test_one_library_is_compiled_and_found_again(folder, monkeypatch):
    made = count_compilations(monkeypatch)
    first = build.load_library()
    assert first.library is not None
    assert "compiled by" in first.reason
    assert load_again().library is not None
    assert made == [1]
    (path,) = folder.iterdir()  # nothing else is left
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert path.suffix == ".so"


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_library_is_built_again(folder, monkeypatch, damage):
    build.load_library()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    # a new file, as the old one is mapped into this process
    path.unlink()
    half = len(content) // 2
    path.write_bytes(content[:half] if damage == "truncated" else content[:half] + bytes(half))
    made = count_compilations(monkeypatch)
    assert load_again().library is not None
    assert made == [1]
    assert path.read_bytes() == content


def test_another_compiler_or_source_makes_another_library(folder, monkeypatch, tmp_path):
    build.load_library()
    compiler(monkeypatch, tmp_path, 'exec cc "$@"')
    assert load_again().library is not None
    assert len(list(folder.iterdir())) == 2
    source = tmp_path / "kernels.c"
    source.write_bytes(build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", source)
    load_again()
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'kernels.c:3: error: no such thing' >&2; exit 1", "error: no such thing"),
        ("exit 3", "ended with status 3"),
        ('for last; do :; done; echo nothing > "$last"', "could not be built"),  # no library at all
        ("kill -9 $$", "ended with status -9"),
        ("exec sleep 60", "did not end within 2 seconds"),
    ],
)
def test_a_compiler_that_fails(folder, monkeypatch, tmp_path, script, words):
    compiler(monkeypatch, tmp_path, script)
    monkeypatch.setattr(build, "_SECONDS", 2)
    choice = choose_backend("auto", CPU)
    assert choice.name == "reference"
    assert choice.kernels is None
    assert words in choice.reason
    assert not list(folder.iterdir())
    with pytest.raises(ConfigError, match="attention_backend='native' is not available on cpu"):
        choose_backend("native", CPU)


def test_no_compiler(folder, monkeypatch, make_llm, checkpoint):
    monkeypatch.setenv("PATH", "")
    choice = choose_backend("auto", CPU)
    assert (choice.name, choice.kernels) == ("reference", None)
    assert "no C compiler was found: install gcc, or set CC to one" in choice.reason
    llm = make_llm(checkpoint("qwen3"))
    assert llm.engine.runner.kernels is None
    assert llm.generate([[1, 2, 3]], use_tqdm=False)[0].token_ids
    assert doctor.examine()["attention"]["reason"] == choice.reason


@pytest.mark.parametrize(
    ("cc", "words"),
    [('gcc "', "No closing quotation"), ("gcc -DLANES_HIDDEN -Dlanes=hidden", "lanes")],
)
def test_a_compiler_command_that_will_not_do(folder, monkeypatch, cc, words):
    """Quotes that do not end; a library that lacks one of the functions."""
    monkeypatch.setenv("CC", cc)
    choice = choose_backend("auto", CPU)
    assert choice.name == "reference"
    assert words in choice.reason


def test_a_compiler_that_speaks_another_language(folder, monkeypatch, tmp_path):
    compiler(monkeypatch, tmp_path, r"printf '\xe9rror: caf\xe9 error\n' >&2; exit 1")
    assert "error" in choose_backend("auto", CPU).reason


def test_other_systems_run_in_plain_torch(folder, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "made for Linux, not for darwin" in choose_backend("auto", CPU).reason


@pytest.mark.parametrize("how", ["a file", "others may write"])
def test_a_cache_that_will_not_do_is_replaced_by_a_temporary_folder(folder, how):
    if how == "a file":
        folder.parent.write_text("", encoding="utf-8")
    else:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    assert build.load_library().library is not None
    assert how == "a file" or not list(folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written(folder):
    folder.mkdir(parents=True, mode=0o500)
    assert build.load_library().library is not None


def test_only_float32_is_for_the_kernels(folder):
    choice = choose_backend("auto", CPU, torch.bfloat16)
    assert choice.name == "reference"
    assert "compute in float32, not in bfloat16" in choice.reason
    with pytest.raises(ConfigError, match="not in float16"):
        choose_backend("native", CPU, torch.float16)


def test_a_gpu_has_other_kernels():
    with pytest.raises(ConfigError, match="'native' is not available on cuda: it needs a CPU"):
        choose_backend("native", torch.device("cuda"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_there_is_one_openmp_runtime(folder):
    """Two would each keep a thread a core that waits busily: half of the speed is lost."""
    code = (
        "import torch; from nanoengine.kernels.native.build import load_library\n"
        "assert load_library().library\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'omp' in line}, sep=';')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(out.stdout.strip().split(";")) == 1, out.stdout
