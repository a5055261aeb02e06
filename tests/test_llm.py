"""LLM, what users call: order of outputs, stops, streams."""

import gc
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import random_prompts

from nanoengine import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)
TEXTS = ["The quick brown fox", "今天天气很好", "def f(x):", "🙂", "line\nbreak"]


@pytest.fixture
def llm(text_model: Path, make_llm: Callable[..., LLM]) -> LLM:
    """A model with a tokenizer."""
    return make_llm(text_model)


def assert_empty(llm: LLM) -> None:
    """Nothing runs or waits, and every block is back."""
    stats = llm.engine.stats()
    assert stats["waiting"] == stats["running"] == 0
    assert stats["free_blocks"] == stats["num_blocks"]
    assert not llm.engine.requests


def tokens(llm: LLM, prompts: list[list[int]] | list[str]) -> list[list[int]]:
    """Greedy tokens of each prompt."""
    return [out.token_ids for out in llm.generate(prompts, GREEDY, use_tqdm=False)]


class TestGenerate:
    """Outputs in the order of the prompts."""

    def test_order_and_kinds_of_prompts(self, llm: LLM) -> None:
        """Short and long outputs finish in another order than they came in."""
        params = [SamplingParams(temperature=0, max_tokens=n) for n in (9, 1, 5, 2, 7)]
        outputs = llm.generate(TEXTS, params, use_tqdm=False)
        assert [out.prompt for out in outputs] == TEXTS
        assert [len(out.token_ids) for out in outputs] == [9, 1, 5, 2, 7]
        tokenizer = llm.engine.tokenizer
        assert tokenizer is not None
        for out, text in zip(outputs, TEXTS, strict=True):
            assert out.prompt_token_ids == tokenizer.encode(text)
            assert out.text == tokenizer.decode(out.token_ids)
            assert out.finish_reason == "length"
        ids = [tokenizer.encode(text) for text in TEXTS]
        again = llm.generate([TEXTS[0], *ids[1:]], params, use_tqdm=False)
        assert [out.token_ids for out in again] == [out.token_ids for out in outputs]
        assert again[1].prompt is None
        assert_empty(llm)

    def test_one_prompt_or_many(self, llm: LLM) -> None:
        many = tokens(llm, TEXTS[:1])
        assert [out.token_ids for out in llm.generate(TEXTS[0], GREEDY, use_tqdm=False)] == many
        assert llm.generate([], GREEDY, use_tqdm=False) == []

    def test_the_defaults_are_vllms(self, llm: LLM) -> None:
        out = llm.generate(TEXTS[0], use_tqdm=False)[0]
        assert len(out.token_ids) <= 16

    def test_the_progress_bar_counts_requests(
        self, llm: LLM, capsys: pytest.CaptureFixture[str]
    ) -> None:
        llm.generate(TEXTS, GREEDY)
        assert "Generating" in (shown := capsys.readouterr().err)
        assert f"{len(TEXTS)}/{len(TEXTS)}" in shown
        llm.generate(TEXTS, GREEDY, use_tqdm=False)
        assert capsys.readouterr().err == ""

    def test_a_second_run_reuses_the_prefix(self, llm: LLM) -> None:
        (prompt,) = random_prompts([30])
        first, second = (llm.generate(prompt, GREEDY, use_tqdm=False)[0] for _ in range(2))
        assert first.num_reused_tokens == 0
        assert second.num_reused_tokens == 28
        assert first.token_ids == second.token_ids


class TestStops:
    """End-of-text token, stop tokens, stop strings, min_tokens."""

    def stop_at(self, llm: LLM, index: int) -> tuple[list[int], int]:
        """A run's tokens, and one of them that has not come before."""
        run = tokens(llm, TEXTS[:1])[0]
        at = next(i for i in range(index, len(run)) if run[i] not in run[:i])
        return run, at

    def test_the_end_of_text_token(self, text_model: Path, make_llm: Callable[..., LLM]) -> None:
        """generation_config's token ends the text and is no part of it."""
        llm = make_llm(text_model)
        run, at = self.stop_at(llm, 4)
        engine = llm.engine
        engine.model_config = replace(engine.model_config, eos_token_ids=(2, run[at]))
        out = llm.generate(TEXTS[0], GREEDY, use_tqdm=False)[0]
        assert out.finish_reason == "stop"
        assert out.token_ids == run[: at + 1]
        ignoring = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        out = llm.generate(TEXTS[0], ignoring, use_tqdm=False)[0]
        assert (out.finish_reason, out.token_ids) == ("length", run)
        assert_empty(llm)

    def test_min_tokens_forbids_stops_before(self, llm: LLM) -> None:
        run, at = self.stop_at(llm, 3)
        params = SamplingParams(
            temperature=0, max_tokens=12, stop_token_ids=[run[at]], min_tokens=at + 3
        )
        out = llm.generate(TEXTS[0], params, use_tqdm=False)[0]
        assert out.token_ids[:at] == run[:at]
        assert out.token_ids[at] != run[at]  # not merely ignored: not chosen
        assert run[at] not in out.token_ids[: at + 3]

    @pytest.mark.parametrize("overlap", [False, True])
    def test_a_stop_string_across_tokens(
        self, text_model: Path, make_llm: Callable[..., LLM], overlap: bool
    ) -> None:
        llm = make_llm(text_model, overlap=overlap)
        whole = llm.generate(TEXTS[0], SamplingParams(temperature=0, max_tokens=40), use_tqdm=False)
        text = whole[0].text
        for start in range(0, len(text) - 4, 3):
            stop = text[start : start + 4]
            params = SamplingParams(temperature=0, max_tokens=40, stop=[stop, "never there"])
            out = llm.generate(TEXTS[0], params, use_tqdm=False)[0]
            assert out.text == text[: text.index(stop)]
            assert out.finish_reason == "stop"
            assert out.token_ids == whole[0].token_ids[: len(out.token_ids)]
        assert_empty(llm)


class TestStream:
    """Pieces of text, as they come."""

    def test_pieces_add_up_and_hold_whole_characters(self, llm: LLM) -> None:
        params = SamplingParams(seed=3, max_tokens=60)
        for text in TEXTS:
            whole = llm.generate(text, params, use_tqdm=False)[0]
            stream = llm.stream(text, params)
            pieces = list(stream)
            assert "".join(pieces) == whole.text == stream.output.text
            assert all(pieces)
            assert stream.output.token_ids == whole.token_ids
            assert len(pieces) > 5

    def test_streams_interleave_with_each_other_and_with_generate(self, llm: LLM) -> None:
        alone = {text: llm.generate(text, GREEDY, use_tqdm=False)[0] for text in TEXTS}
        streams = {text: llm.stream(text, GREEDY) for text in TEXTS[:3]}
        got = dict.fromkeys(streams, "")
        choose = random.Random(0)
        generated = None
        while streams:
            text = choose.choice(list(streams))
            try:
                got[text] += next(streams[text])
            except StopIteration:
                del streams[text]
            if generated is None and len(streams) == 2:
                generated = tokens(llm, TEXTS[3:])
        assert got == {text: alone[text].text for text in got}
        assert generated == [alone[text].token_ids for text in TEXTS[3:]]
        assert_empty(llm)

    def test_an_exhausted_stream_stays_exhausted(self, llm: LLM) -> None:
        stream = llm.stream(TEXTS[0], GREEDY)
        list(stream)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(stream)
        stream.close()
        assert stream.output.finish_reason == "length"

    @pytest.mark.parametrize("how", ["close", "drop", "abort"])
    def test_a_stream_left_early_gives_its_blocks_back(self, llm: LLM, how: str) -> None:
        stream = llm.stream(TEXTS[0], SamplingParams(temperature=0, max_tokens=200))
        next(stream)
        output = stream.output
        if how == "close":
            stream.close()
            stream.close()
        elif how == "abort":
            llm.abort(output.request_id)
            assert "".join(stream) in output.text
        del stream
        gc.collect()
        llm.engine.step()
        assert output.finish_reason == "abort"
        assert 0 < len(output.token_ids) < 200
        assert_empty(llm)

    def test_a_prompt_that_fills_the_model_gives_nothing(
        self, text_model: Path, make_llm: Callable[..., LLM]
    ) -> None:
        llm = make_llm(text_model, max_model_len=8)
        stream = llm.stream([1] * 8, GREEDY)
        assert list(stream) == []
        assert stream.output.finish_reason == "length"
        llm.engine.step()
        assert_empty(llm)
