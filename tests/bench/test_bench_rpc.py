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
        assert run["message_bytes"] == 4 * (1 + 6 * run["sequences"])
        assert all(run[f"{name}_us"] > 0 for name in ("encode", "send", "answer", "decode"))
