"""Every model family gives transformers' tokens, and its logits at every step."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import KINDS, Oracle, random_prompts, relative_error

from nanoengine import SamplingParams
from nanoengine.engine.record import StepRecord
from nanoengine.llm import LLM

NEW_TOKENS = 16
# 32 prompts of 1 to 200 tokens; multiples of every block size and their neighbours among them
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65,
           80, 96, 100, 127, 128, 150, 199, 200]  # fmt: skip


class LogitLog:
    """Collects each request's logits in the order of its tokens."""

    def __init__(self) -> None:
        self.rows: dict[str, list[torch.Tensor]] = {}

    def __call__(self, record: StepRecord) -> None:
        """An `on_step` callback; rows that sampled nothing are left out."""
        assert record.logits is not None
        for row, token in enumerate(record.tokens):
            if token is not None:
                request_id = record.batch.items[row].seq.request_id
                self.rows.setdefault(request_id, []).append(record.logits[row])


def assert_equals_oracle(
    oracle: Oracle, prompt: list[int], tokens: list[int], logits: list[torch.Tensor]
) -> None:
    """The tokens are the greedy ones of a dense forward, and the logits are its logits."""
    theirs = oracle.logits(prompt + tokens[:-1], len(prompt) - 1)
    ours = torch.stack(logits)[: len(tokens)]  # a late step's row may follow
    assert relative_error(ours, theirs) < 1e-4
    assert tokens == theirs.argmax(dim=-1).tolist()


@pytest.mark.parametrize("block_size", [4, 16, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_logits(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM], kind: str, block_size: int
) -> None:
    folder = checkpoint(kind)
    log = LogitLog()
    llm = make_llm(folder, kvcache_block_size=block_size, num_kvcache_blocks=None, on_step=log)
    prompts = random_prompts(LENGTHS)
    outputs = llm.generate(
        prompts, SamplingParams(temperature=0, max_tokens=NEW_TOKENS), use_tqdm=False
    )
    oracle = Oracle(folder)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert len(output.token_ids) == NEW_TOKENS
        assert_equals_oracle(oracle, prompt, output.token_ids, log.rows[output.request_id])


def test_the_oracle_is_not_degenerate(checkpoint: Callable[[str], Path]) -> None:
    """A model that repeats itself, or cannot decide, would hide faults."""
    for kind in KINDS:
        oracle = Oracle(checkpoint(kind))
        prompts = random_prompts([3, 50, 130])
        tokens = [oracle.greedy(prompt, NEW_TOKENS) for prompt in prompts]
        assert all(len(set(out)) >= NEW_TOKENS // 2 for out in tokens), (kind, tokens)
        top = oracle.logits(prompts[1] + tokens[1]).topk(2).values
        assert float((top[:, 0] - top[:, 1]).median() / top.abs().max()) > 1e-2, kind


def test_a_prompt_and_its_continuation_agree(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    """The logits after n + 1 tokens are the same whether the last one was prompt or decoded."""
    log = LogitLog()
    llm = make_llm(checkpoint("qwen3"), on_step=log, enable_prefix_caching=False)
    greedy = SamplingParams(temperature=0, max_tokens=2)
    (prompt,) = random_prompts([11])
    first = llm.generate(prompt, greedy, use_tqdm=False)[0]
    second = llm.generate(prompt + first.token_ids[:1], greedy, use_tqdm=False)[0]
    decoded, prefilled = log.rows[first.request_id][1], log.rows[second.request_id][0]
    assert relative_error(decoded, prefilled) < 1e-5
