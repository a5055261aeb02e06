"""LLM in trouble: aborts, exceptions and Ctrl-C in the middle, and the end."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import random_prompts

from nanoengine import LLM, SamplingParams
from nanoengine.engine.record import StepRecord
from nanoengine.errors import EngineError

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


class TestAbort:
    """A request that is no longer wanted."""

    @pytest.mark.parametrize("steps", [0, 1, 2, 5])
    def test_others_go_on(self, llm: LLM, steps: int) -> None:
        alone = tokens(llm, [[5, 6, 7]])[0]
        engine = llm.engine
        gone, stays = (engine.output(engine.add_request(p, GREEDY)) for p in ([1, 2], [5, 6, 7]))
        for _ in range(steps):
            engine.step()
        llm.abort(gone.request_id)
        llm.abort(gone.request_id)
        llm.abort("never there")
        reported = []
        while engine.has_unfinished:
            reported += engine.step()
        assert gone.finish_reason == "abort"
        assert len(gone.token_ids) == steps
        assert gone in reported
        assert stays.token_ids == alone
        assert_empty(llm)

    @pytest.mark.parametrize("when", range(6))
    def test_from_on_step(self, text_model: Path, make_llm: Callable[..., LLM], when: int) -> None:
        """A callback may abort, in the middle of a mixed step, too; tokens stay right."""
        ids: list[str] = []

        def callback(record: StepRecord) -> None:
            if len(seen) == when:
                llm.abort(ids[0])
            seen.append(record)

        llm = make_llm(text_model, on_step=callback)
        seen: list[StepRecord] = []
        engine = llm.engine
        prompts = random_prompts([5, 9, 6])
        ids += [engine.add_request(prompts[0], GREEDY), engine.add_request(prompts[1], GREEDY)]
        outputs = [engine.output(i) for i in ids]
        engine.step()
        outputs.append(engine.output(engine.add_request(prompts[2], GREEDY)))  # a mixed step
        while engine.has_unfinished:
            engine.step()
        alone = tokens(make_llm(text_model), prompts)
        assert outputs[0].finish_reason == "abort"
        assert outputs[0].token_ids == alone[0][: len(outputs[0].token_ids)]
        assert [out.token_ids for out in outputs[1:]] == alone[1:]
        assert_empty(llm)

    def test_own_request_ids_do_not_collide_with_the_engines(self, llm: LLM) -> None:
        llm.engine.add_request([1], GREEDY, request_id="request-0")
        assert len(tokens(llm, [[1], [2]])) == 2


class Trouble(Exception):
    """Something that goes wrong in user code."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Trouble])
@pytest.mark.parametrize("overlap", [False, True])
class TestExceptions:
    """Whatever is raised in the middle, Ctrl-C too: the engine is empty and usable after it."""

    @pytest.mark.parametrize("when", [1, 2, 5])
    @pytest.mark.parametrize("where", ["on_step", "run", "tokens", "scheduler", "bar"])
    def test_generate(
        self,
        text_model: Path,
        make_llm: Callable[..., LLM],
        monkeypatch: pytest.MonkeyPatch,
        kind: type[BaseException],
        overlap: bool,
        where: str,
        when: int,
    ) -> None:
        calls = 0

        def bomb(*args: object) -> None:
            nonlocal calls
            calls += 1
            if calls == when:
                raise kind

        llm = make_llm(text_model, overlap=overlap, on_step=bomb if where == "on_step" else None)
        stream = llm.stream(TEXTS[0], GREEDY)
        engine, before = llm.engine, make_llm(text_model)
        targets = {
            "run": (engine.runner.model, "compute_logits"),
            "tokens": (engine, "_append"),
            "scheduler": (engine.scheduler, "applied"),
        }
        with monkeypatch.context() as patch:
            if where in targets:
                target, name = targets[where]
                real = getattr(target, name)
                patch.setattr(target, name, lambda *args: (bomb(), real(*args))[1])
            if where == "bar":
                patch.setattr("nanoengine.llm.tqdm.update", bomb)
            with pytest.raises(kind):
                llm.generate(TEXTS, GREEDY, use_tqdm=False)
        if where == "bar":  # outside of a step only generate's own requests end
            assert "".join(stream) == before.generate(TEXTS[0], GREEDY, use_tqdm=False)[0].text
        else:
            assert list(stream) in ([], [stream.output.text])
            assert stream.output.finish_reason == "abort"
        assert_empty(llm)
        assert tokens(llm, TEXTS) == tokens(before, TEXTS)

    def test_abort(
        self,
        text_model: Path,
        make_llm: Callable[..., LLM],
        monkeypatch: pytest.MonkeyPatch,
        kind: type[BaseException],
        overlap: bool,
    ) -> None:
        """An abort reads tokens, too, and may be interrupted there."""
        llm = make_llm(text_model, overlap=overlap)
        ids = [llm.engine.add_request(text, GREEDY) for text in TEXTS]
        llm.engine.step()

        def bomb(*args: object) -> None:
            raise kind

        with monkeypatch.context() as patch:
            patch.setattr(llm.engine, "_append", bomb)
            if overlap:
                with pytest.raises(kind):
                    llm.abort(ids[0])
        for request_id in ids:
            llm.abort(request_id)
        llm.engine.step()
        assert_empty(llm)
        assert tokens(llm, TEXTS) == tokens(make_llm(text_model), TEXTS)


class TestClose:
    """The end."""

    def test_twice_and_then_nothing_goes(self, llm: LLM) -> None:
        stream = llm.stream(TEXTS[0], GREEDY)
        next(stream)
        llm.close()
        llm.close()
        assert stream.output.finish_reason == "abort"
        assert len(list(stream)) <= 1  # what had come already
        for use in (
            lambda: llm.generate("x"),
            lambda: llm.stream("x"),
            lambda: llm.abort("x"),
            lambda: llm.engine,
        ):
            with pytest.raises(EngineError, match="closed: make a new one"):
                use()

    def test_a_context_manager_closes_also_after_an_error(self, text_model: Path) -> None:
        with pytest.raises(Trouble), LLM(text_model, device="cpu", num_kvcache_blocks=8) as llm:
            raise Trouble
        with pytest.raises(EngineError):
            llm.generate("x")

    def test_the_cache_is_let_go(self, text_model: Path) -> None:
        llm = LLM(text_model, device="cpu", num_kvcache_blocks=8)
        llm.generate("x", GREEDY, use_tqdm=False)
        cache = weakref.ref(llm.engine.runner.kv_cache)
        llm.close()
        gc.collect()
        assert cache() is None

    def test_two_engines_at_once_do_not_meet(
        self, text_model: Path, make_llm: Callable[..., LLM]
    ) -> None:
        one, two = make_llm(text_model), make_llm(text_model, kvcache_block_size=16)
        first, second = one.stream(TEXTS[0], GREEDY), two.stream(TEXTS[1], GREEDY)
        texts = ["", ""]
        for a, b in zip(first, second, strict=False):
            texts[0] += a
            texts[1] += b
        assert first.output.text.startswith(texts[0])
        texts = [stream.output.text + "".join(stream)[:0] for stream in (first, second)]
        list(first)
        list(second)
        assert first.output.token_ids == tokens(two, TEXTS[:1])[0]
        assert second.output.token_ids == tokens(one, TEXTS[1:2])[0]
