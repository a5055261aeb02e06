"""The cost of telling another rank about a step: what is reported, not how fast it is."""

import json

import pytest

from nanoengine.bench import rpc


def test_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_STEPS", 3)
    assert rpc.main() == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["sequences"] for run in result["runs"]] == list(rpc.BATCHES)
    for run in result["runs"]:
        # is_prefill, then row, start, end, known blocks, new blocks and a token a sequence
        assert run["full_message_bytes"] == 4 * (1 + 6 * run["sequences"])
        # "go on", and two numbers for a sequence that gets a block: no two in the same step
        assert run["message_bytes"] in (4, 12)
        for form in ("", "full_"):
            times = (run[f"{form}{name}_us"] for name in ("encode", "send", "answer", "decode"))
            assert all(time > 0 for time in times)
