"""The command line: dispatch, options made from dataclasses, errors in one line."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nanoengine import cli
from nanoengine.commands.options import (
    Parser,
    add_engine_options,
    add_sampling_options,
    descriptions,
    engine_options,
    sampling_params,
)
from nanoengine.config import EngineConfig
from nanoengine.errors import FetchError
from nanoengine.sampling_params import SamplingParams


def parser() -> Parser:
    made = Parser("prog", "words")
    add_sampling_options(made, max_tokens=99)
    add_engine_options(made)
    return made


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main([name, "--help"])
    assert exit_info.value.code == 0
    assert f"nanoengine {name}" in capsys.readouterr().out


def test_help_lists_every_command_and_imports_no_torch() -> None:
    code = "import sys; from nanoengine import cli; cli.main(['-h']); print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert lines[-1] == "False"
    for name in cli.COMMANDS:
        assert any(line.split()[:1] == [name] for line in lines)


def test_no_command_prints_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.EXIT_USAGE
    assert "usage: nanoengine" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nanoengine ")


def test_unknown_command_names_the_close_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["genrate"]) == cli.EXIT_USAGE
    assert capsys.readouterr().err == (
        "nanoengine: unknown command 'genrate': did you mean 'generate'?\n"
    )


def test_unknown_flag_names_the_close_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["generate", "x", "--max-token", "3"])
    assert exit_info.value.code == cli.EXIT_USAGE
    error = capsys.readouterr().err
    assert "'--max-token': --max-tokens?" in error
    assert error.count("\n") == 1


def test_flags_are_not_abbreviated() -> None:
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--js"])


@pytest.mark.parametrize("cls", [EngineConfig, SamplingParams])
def test_every_field_is_described(cls: type) -> None:
    fields = [field.name for field in dataclasses.fields(cls)]
    texts = descriptions(cls)
    assert [name for name in fields if not texts.get(name)] == []
    assert "stop_token_ids" not in texts.get("stop", "")


def test_fields_that_are_not_given_are_left_to_the_library() -> None:
    args = parser().parse([])
    assert engine_options(args) == {}
    assert sampling_params(args) == SamplingParams(max_tokens=99)


def test_every_kind_of_field_is_read() -> None:
    words = (
        "--model m --dtype bfloat16 --block-size 8 --gpu-memory-utilization 0.5 --no-overlap "
        "--enforce-eager --temperature 0 --top-k 3 --stop a --stop b --stop-token-ids 1,2 "
        "--ignore-eos --seed 7"
    )
    args = parser().parse(words.split())
    assert engine_options(args) == {
        "model": "m",
        "dtype": "bfloat16",
        "kvcache_block_size": 8,
        "gpu_memory_utilization": 0.5,
        "overlap": False,
        "enforce_eager": True,
    }
    assert sampling_params(args) == SamplingParams(
        temperature=0.0,
        top_k=3,
        stop=["a", "b"],
        stop_token_ids=[1, 2],
        ignore_eos=True,
        seed=7,
        max_tokens=99,
    )


@pytest.mark.parametrize("word", ["1,x", "1.5", ""])
def test_a_value_of_another_type_is_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse(["--stop-token-ids", word])
    error = capsys.readouterr().err
    assert "list of integers" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["generate", "x", "--temperature", "nan"], "temperature=nan"),
        (["generate", "x", "--max-tokens", "0"], "max_tokens=0"),
        (["generate", "x", "--max-num-seqs", "0"], "max_num_seqs=0"),
        (["generate", "x", "--block-size", "5"], "kvcache_block_size=5"),
        (["generate", "x", "--model", "/no/such/folder"], "/no/such/folder"),
        (["generate", "--file", "/no/such/file"], "/no/such/file"),
        (["chat", "--model", "/no/such/folder"], "/no/such/folder"),
        (["tour", "--model", "/no/such/folder"], "/no/such/folder"),
        (["fetch", "nothing"], "'nothing'"),
    ],
)
def test_an_expected_error_is_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == cli.EXIT_ERROR
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"nanoengine {argv[0]}: ")


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise FetchError("first\n  second")

    monkeypatch.setattr(cli, "load", lambda name: fail)
    assert cli.main(["fetch"]) == cli.EXIT_ERROR
    assert capsys.readouterr().err == "nanoengine fetch: first second\n"


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "load", lambda name: fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["fetch"])


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT from another process")
def test_ctrl_c_ends_with_130_and_no_traceback(text_model: Path) -> None:
    command = [sys.executable, "-u", "-m", "nanoengine", "generate", "The fox"]
    command += ["--model", str(text_model), "--max-tokens", "600", "--ignore-eos"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)  # the first character: it is in the middle of the answer
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == cli.EXIT_INTERRUPTED
        assert process.stderr.read() == "\nnanoengine generate: interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="no pipes of this kind")
def test_a_reader_that_leaves_is_no_error(text_model: Path) -> None:
    command = [sys.executable, "-u", "-m", "nanoengine", "tour", "--model", str(text_model)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == cli.EXIT_BROKEN_PIPE
        assert process.stderr.read() == ""
