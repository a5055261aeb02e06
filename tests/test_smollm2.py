"""A real model: SmolLM2-135M says to real chat prompts what it says under transformers."""

from pathlib import Path

import pytest
import torch
from tiny_models import Oracle, relative_error

from nanoengine import LLM, SamplingParams
from nanoengine.engine.record import StepRecord
from nanoengine.sources import resolve_model

pytestmark = pytest.mark.model

NEW_TOKENS = 24
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about autumn leaves.",
    "Explain photosynthesis to a child.",
    "List three fruits that are red.",
    "Translate 'good morning' into Spanish.",
    "What is 12 times 7?",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "Summarize: The cat sat on the mat because the floor was cold and the mat was warm.",
    "What does the word 'ephemeral' mean?",
    "今天天气怎么样？",
    "Is this sentence happy or sad? 'I finally found my lost dog 🙂'",
    "Continue: 1, 1, 2, 3, 5, 8,",
    "Hi!",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    """SmolLM2's folder, fetched on first use."""
    return resolve_model("smollm2")


def test_sixteen_chats_equal_transformers(folder: Path) -> None:
    """Greedy, float32, in one batch with a shared prefix (the system prompt)."""
    logits: dict[str, list[torch.Tensor]] = {}

    def keep(record: StepRecord) -> None:
        assert record.logits is not None
        for row, item in enumerate(record.batch.items):
            if record.tokens[row] is not None:
                logits.setdefault(item.seq.request_id, []).append(record.logits[row])

    with LLM(folder, device="cpu", dtype="float32", num_kvcache_blocks=256, on_step=keep) as llm:
        tokenizer = llm.engine.tokenizer
        assert tokenizer is not None
        prompts = [
            tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in QUESTIONS
        ]
        greedy = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
        first = llm.generate(prompts[:1], greedy, use_tqdm=False)
        outputs = first + llm.generate(prompts[1:], greedy, use_tqdm=False)
        assert all(out.num_reused_tokens >= 16 for out in outputs[1:])
    oracle = Oracle(folder)
    for prompt, out in zip(prompts, outputs, strict=True):
        assert 0 < len(out.token_ids) <= NEW_TOKENS
        theirs = oracle.logits(prompt + out.token_ids[:-1], len(prompt) - 1)
        assert out.token_ids == theirs.argmax(-1).tolist(), out.text
        ours = torch.stack(logits[out.request_id])[: len(theirs)]
        assert relative_error(ours, theirs) < 1e-4
        assert out.finish_reason == ("stop" if out.token_ids[-1] == 2 else "length")
    assert "Paris" in outputs[0].text
