"""A request that is no longer wanted gives back everything, whenever it is told to end.

nanovllm-voxcpm #37 (a client that disconnects ends the engine), vllm #3347 (blocks freed twice).
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runner import expected_tokens, fake_engine
from test_schedule_properties import check_empty, check_pool
from tiny_models import VOCAB, random_prompts

from nanoengine import LLM, SamplingParams
from nanoengine.engine.engine import LLMEngine

ABORTS = 1000


def abort_many(engine: LLMEngine, vocab: int, seed: int, wanted: int = ABORTS) -> int:
    """Requests come and are aborted at random moments; returns how many aborts there were."""
    pick, open_ids, aborts = random.Random(seed), list[str](), 0
    prefix = [pick.randrange(1, vocab) for _ in range(9)]
    while aborts < wanted:
        for _ in range(pick.randint(0, 6)):
            prompt = prefix[: pick.randint(0, 9)] + [pick.randrange(1, vocab)] * pick.randint(1, 5)
            params = SamplingParams(max_tokens=pick.randint(1, 30), seed=aborts, ignore_eos=True)
            open_ids.append(engine.add_request(prompt, params))
        for _ in range(pick.randint(0, 4)):
            if open_ids:
                request_id = open_ids.pop(pick.randrange(len(open_ids)))
                if request_id in engine.requests:
                    output = engine.output(request_id)
                    engine.abort(request_id)
                    assert output.finished
                    assert request_id not in engine.requests
                    aborts += output.finish_reason == "abort"
        for _ in range(pick.randint(0, 3)):
            engine.step()
    check_pool(engine)
    for request_id in open_ids:
        engine.abort(request_id)
    return aborts


@pytest.mark.parametrize("overlap", [False, True])
def test_a_thousand_aborts_leave_the_pool_full(tmp_path: Path, overlap: bool) -> None:
    engine = fake_engine(tmp_path, num_blocks=40, max_num_seqs=16, overlap=overlap)
    assert abort_many(engine, 9, seed=overlap) >= ABORTS
    assert engine.scheduler.num_preemptions > 10
    engine.step()
    check_empty(engine)
    output = engine.output(engine.add_request([5, 3], SamplingParams(max_tokens=20)))
    while engine.has_unfinished:
        engine.step()
    assert output.token_ids == expected_tokens([5, 3], 22)


def test_hundreds_of_aborts_of_a_model(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    (prompt,) = random_prompts([20])
    params = SamplingParams(temperature=0, max_tokens=8)
    options = {"num_kvcache_blocks": 60, "max_num_seqs": 16}
    before = make_llm(checkpoint("qwen3"), **options).generate(prompt, params, use_tqdm=False)
    llm = make_llm(checkpoint("qwen3"), **options)
    assert abort_many(llm.engine, VOCAB, seed=7, wanted=300) >= 300
    llm.engine.step()
    check_empty(llm.engine)
    after = llm.generate(prompt, params, use_tqdm=False)
    assert after[0].token_ids == before[0].token_ids


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps", range(7))
def test_blocks_are_free_as_soon_as_nothing_is_in_flight(
    tmp_path: Path, steps: int, overlap: bool
) -> None:
    """Waiting, in the middle of its prompt, decoding; shared blocks stay with their other owner."""
    engine = fake_engine(tmp_path, num_blocks=16, max_num_batched_tokens=7, overlap=overlap)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    stays = engine.output(engine.add_request([1, 2, 3, 4, 5, 6, 7, 8, 1], params))
    gone = engine.add_request([1, 2, 3, 4, 5, 6, 7, 8, 2, 2], params)
    for _ in range(steps):
        engine.step()
    engine.abort(gone)
    running = engine.scheduler.running
    assert [seq.request_id for seq in running] == [stays.request_id][: len(running)]
    held = {block for seq in running for block in seq.block_table}
    assert engine.stats()["free_blocks"] == 16 - len(held)
    assert not engine._in_flight
    check_pool(engine)
    while engine.has_unfinished:
        engine.step()
    assert stays.token_ids == expected_tokens(stays.prompt_token_ids, 29, ignore_eos=True)
    check_empty(engine)


@pytest.mark.parametrize("read", range(6))
@pytest.mark.parametrize("how", ["close", "drop"])
def test_a_stream_left_early_beside_generate(
    text_model: Path, make_llm: Callable[..., LLM], read: int, how: str
) -> None:
    """generate and another stream go on as if it had never been."""
    llm = make_llm(text_model)
    params = SamplingParams(seed=5, max_tokens=12, ignore_eos=True)
    alone = [llm.generate(text, params, use_tqdm=False)[0] for text in ("one", "two", "three")]
    kept, left = llm.stream("one", params), llm.stream("a fourth", params)
    text = next(kept)
    for _ in range(read):
        next(left, "")
    output = left.output
    if how == "close":
        left.close()
        assert output.finish_reason == "abort"
        check_pool(llm.engine)
    del left
    both = llm.generate(["two", "three"], params, use_tqdm=False)
    assert output.finish_reason == "abort"
    assert [out.token_ids for out in both] == [out.token_ids for out in alone[1:]]
    assert text + "".join(kept) == alone[0].text
    check_empty(llm.engine)
