"""`nanoengine chat`, with what the user types coming through a pipe."""

import io
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nanoengine import cli
from nanoengine.commands.chat import Conversation
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

COUNT = re.compile(r"\[(\d+) of (\d+) prompt tokens reused, (\d+) new(, stopped)?\]")


@pytest.fixture
def talk(
    text_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """`talk("line", ...)`: a chat's (stdout, stderr) after these lines."""

    def run(*lines: str, argv: tuple[str, ...] = ()) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        command = ["chat", "--model", str(text_model), "--block-size", "4", "--temperature", "0"]
        assert cli.main([*command, "--max-tokens", "6", *argv]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def counts(out: str) -> list[tuple[int, int]]:
    return [(int(m[1]), int(m[2])) for m in COUNT.finditer(out)]


def test_later_turns_reuse_the_whole_blocks_of_earlier_ones(
    talk: Callable[..., tuple[str, str]],
) -> None:
    (first, second, third) = counts(talk("The quick fox", "Why?", "How?")[0])
    assert first[0] == 0
    for before, turn in ((first, second), (second, third)):
        # everything asked before is found again, up to the last whole block of 4
        assert turn[0] >= before[1] // 4 * 4 > 0
        assert turn[1] > before[1]


def test_reset_forgets(talk: Callable[..., tuple[str, str]]) -> None:
    out, _ = talk("The quick brown fox jumps over it", "/reset", "Why?", "/reset", "Why?")
    first, second, third = counts(out)
    assert second[1] < first[1]
    assert third[1] == second[1]
    assert third[0] == (second[1] - 1) // 4 * 4  # the cache itself is not forgotten


def test_quit_and_the_end_of_input_end_it(talk: Callable[..., tuple[str, str]]) -> None:
    assert len(counts(talk("a", "/quit", "b")[0])) == 1
    assert counts(talk()[0]) == []


def test_an_unknown_command_is_not_sent_to_the_model(
    talk: Callable[..., tuple[str, str]],
) -> None:
    out, _ = talk("/rest")
    assert counts(out) == []
    assert "/rest is no command" in out


def test_a_conversation_that_grows_too_long_can_be_reset(
    talk: Callable[..., tuple[str, str]],
) -> None:
    out, error = talk("a b c d " * 20, "Hi", argv=("--max-model-len", "64"))
    assert "max_model_len" in error
    assert "/reset" in error
    assert error.count("\n") == 1
    assert len(counts(out)) == 1  # the short question is answered: the long one left no trace


def test_the_system_message_stays(talk: Callable[..., tuple[str, str]]) -> None:
    plain = counts(talk("Hi")[0])[0]
    out, _ = talk("Hi", "/reset", "Hi", argv=("--system", "Be brief."))
    first, second = counts(out)
    assert first[1] == second[1] > plain[1]


def test_ctrl_c_ends_the_answer_only(
    text_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LLM(text_model, kvcache_block_size=4) as llm:
        params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
        conversation = Conversation(llm, params)
        step, steps = llm.engine.step, iter(range(1000))

        def interrupting() -> object:
            if next(steps) == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return step()

        monkeypatch.setattr(llm.engine, "step", interrupting)
        conversation.answer("The quick brown fox")
        match = COUNT.search(capsys.readouterr().out)
        assert match is not None
        assert match[4] == ", stopped"
        assert int(match[3]) < 20
        assert llm.engine.stats()["running"] == 0
        conversation.answer("Go on")
        assert counts(capsys.readouterr().out)[0][0] > 0  # the cache survived
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_model_without_a_template_cannot_chat(
    checkpoint: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["chat", "--model", str(checkpoint("qwen3"))]) == cli.EXIT_ERROR
    assert "no tokenizer" in capsys.readouterr().err
