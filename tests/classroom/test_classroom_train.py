"""The training script on made-up text: reproducible, and what it writes is a usable model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nanoengine.classroom import synthesize, train, verify_folder
from nanoengine.classroom.assignments import reply_requests, story_requests

SHORT = ["--smoke", "--device", "cpu"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[dict[str, float]]]]:
    out = []
    for seed in ("0", "0", "1"):
        folder = tmp_path_factory.mktemp("smoke")
        out.append((folder, train.main([*SHORT, "--seed", seed, "--out", str(folder)])))
    return out


def test_same_seed_same_loss(runs: list[tuple[Path, list[dict[str, float]]]]) -> None:
    losses = [[p.get("train_loss", p.get("held_out_loss")) for p in curve] for _, curve in runs]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_loss_falls_and_the_folder_loads_anywhere(
    runs: list[tuple[Path, list[dict[str, float]]]],
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, curve = runs[0]
    assert curve[-1]["held_out_loss"] < 0.7 * np.log(train.SMOKE_VOCAB_SIZE)
    verify_folder(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Hello, I am Ana.", return_tensors="pt").input_ids
    loss = float(model(input_ids=ids, labels=ids).loss)
    assert loss < np.log(train.SMOKE_VOCAB_SIZE)


def test_dropout_acts_in_training_only() -> None:
    model = train.build_model(train.SMOKE, train.SMOKE_VOCAB_SIZE)
    ids = torch.arange(8)[None]
    model.train()
    assert not torch.equal(model(ids).logits, model(ids).logits)
    model.eval()
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_windows_cover_the_stream_with_one_shared_token() -> None:
    rows = train.windows(np.arange(11, dtype=np.uint16), 3)
    assert rows.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    with pytest.raises(ValueError, match="3 tokens give no window of 3"):
        train.windows(np.arange(3, dtype=np.uint16), 3)


def test_learning_rate_warms_up_and_ends_at_zero() -> None:
    config = train.TrainConfig(learning_rate=1.0, warmup_steps=10)
    rates = [train.learning_rate(step, 100, config) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 4096}, "seq_len 4096 exceeds max_position_embeddings 2048"),
        ({"num_key_value_heads": 3}, "8 query heads cannot share 3"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train.TrainConfig(**options)  # type: ignore[arg-type]


def test_unknown_options_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        train.main(["--smoke", "--out", str(tmp_path), "--hiden-size", "8"])
    with pytest.raises(SystemExit):
        train.main(["--out", str(tmp_path)])
    assert "--data is needed" in capsys.readouterr().err


def test_teacher_text_is_cut_at_a_sentence_and_screened() -> None:
    story, reply = next(story_requests()), reply_requests([])[0]
    kept = synthesize.finish(story, " who ran. He was\n\nhappy. The en")
    assert kept is not None
    assert kept.pieces[-1] == f"{story.opening} who ran. He was\nhappy."
    kept = synthesize.finish(reply, "I’m fine. And you?\n\nGood. No. Never.")
    assert kept is not None
    assert kept.pieces == (*reply.turns, "I'm fine. And you? Good.")
    for bad in ("no end", "As a language model, I can.", "Call 555-123-4567.", "Ünlike this."):
        assert synthesize.finish(reply, bad) is None
    assert synthesize.finish(story, " ran and ran." * 30) is None


def test_sampling_stops_at_eos_and_follows_the_seed(
    runs: list[tuple[Path, list[dict[str, float]]]],
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(runs[0][0], dtype=torch.float32)
    ids, eos = torch.tensor([[1, 40, 41]] * 6), 2
    draws = [
        synthesize.sample(model, ids, eos, 24, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    for row in draws[0].tolist():
        if eos in row:
            assert set(row[row.index(eos) :]) == {eos}


def test_requests_are_always_the_same() -> None:
    first, second = ([next(g) for _ in range(50)] for g in (story_requests(), story_requests()))
    assert first == second
    assert len({r.opening for r in first}) > 40
