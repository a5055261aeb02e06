"""`nanoengine generate`."""

import io
import json
from pathlib import Path

import pytest

from nanoengine import cli
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

GREEDY = ["--temperature", "0", "--max-tokens", "8"]


def run(*argv: str) -> None:
    assert cli.main(["generate", *argv, *GREEDY]) == 0


def test_json_is_one_object_a_request(text_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ["The quick brown fox", "def f(x):", "The quick brown fox"]
    run(*prompts, "--json", "--model", str(text_model), "--block-size", "4")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with LLM(text_model, kvcache_block_size=4) as llm:
        expected = llm.generate(
            prompts, SamplingParams(temperature=0, max_tokens=8), use_tqdm=False
        )
    assert rows == [
        {
            "prompt": prompt,
            "text": output.text,
            "token_ids": output.token_ids,
            "finish_reason": output.finish_reason,
            "num_reused_tokens": output.num_reused_tokens,
        }
        for prompt, output in zip(prompts, expected, strict=True)
    ]


def test_one_prompt_prints_its_text_alone(
    text_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("The quick", "--model", str(text_model))
    plain = capsys.readouterr().out
    run("The quick", "--model", str(text_model), "--json")
    assert plain == json.loads(capsys.readouterr().out)["text"] + "\n"


def test_chat_uses_the_template(text_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("Hi", "--chat", "--json", "--model", str(text_model))
    row = json.loads(capsys.readouterr().out)
    with LLM(text_model) as llm:
        assert llm.engine.tokenizer is not None
        ids = llm.engine.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
        params = SamplingParams(temperature=0, max_tokens=8)
        assert row["token_ids"] == llm.generate([ids], params, use_tqdm=False)[0].token_ids
    assert row["prompt"] == "Hi"


def test_a_file_holds_one_prompt_a_line(
    text_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("The fox\n\nline breaks 今天\n", encoding="utf-8")
    run("--file", str(file), "--json", "--model", str(text_model))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["prompt"] for row in rows] == ["The fox", "line breaks 今天"]


def test_standard_input_is_a_file(
    text_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    run("--file", "-", "--model", str(text_model))
    out = capsys.readouterr().out
    assert "[1/2] 'one'" in out
    assert "[2/2] 'two'" in out


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"])
def test_a_file_without_a_prompt_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(content)
    assert cli.main(["generate", "--file", str(file)]) == cli.EXIT_ERROR
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["x", "--file", "y"]])
def test_prompts_or_a_file_not_both(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["generate", *argv])
    assert exit_info.value.code == cli.EXIT_USAGE
