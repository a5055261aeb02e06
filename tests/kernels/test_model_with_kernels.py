"""A whole model on the kernels against the same model in plain torch, logits of every step."""

import dataclasses
import random

import pytest
import tiny_models
import torch

from nanoengine import LLM, SamplingParams
from nanoengine.kernels.binding import bind_kernels
from nanoengine.kernels.capability import Capability
from nanoengine.kernels.gpu import GpuKernels

if torch.cuda.is_available():
    pytest.skip("tests/gpu compares whole models on a GPU", allow_module_level=True)

FULL = Capability(pdl=False)
OLD = dataclasses.replace(FULL, tma=False, shared_memory=64 * 1024, sms=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Wide enough for products that are split along their inner axis."""
    sizes = {"hidden_size": 64, "intermediate_size": 600, "num_attention_heads": 8,
             "num_key_value_heads": 4, "head_dim": 40, "num_hidden_layers": 1}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_models.KINDS, "wide", ("Qwen3", sizes))
        return tiny_models.save(tmp_path_factory.mktemp("wide"), "wide")


def run(folder, device, **options):
    """Tokens of every request and logits of every run; device None: plain torch."""
    rng = random.Random(0)
    texts = [[rng.randrange(500) for _ in range(n)] for n in (37, 3)]
    records = []
    with LLM(folder, on_step=records.append, device="cpu", num_kvcache_blocks=64,
             max_model_len=256, **options) as llm:  # fmt: skip
        runner = llm.engine.runner
        if device is not None:
            runner.kernels = GpuKernels(device)
            bind_kernels(runner.model, runner.kernels)
            for layer in runner.model.model.layers:
                layer.self_attn.attn.backend = runner.kernels
        params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        outs = llm.generate(texts, params, use_tqdm=False)
        return [o.token_ids for o in outs], [record.logits for record in records]


@pytest.mark.parametrize("device", [FULL, OLD], ids=["full", "old"])
@pytest.mark.parametrize("budget", [1024, 34])
def test_logits_are_those_of_plain_torch(folder, device, budget):
    options = {"max_num_batched_tokens": budget, "kvcache_block_size": 16}
    tokens, logits = run(folder, device, **options)
    want_tokens, want = run(folder, None, **options)
    assert tokens == want_tokens
    for a, b in zip(logits, want, strict=True):
        assert (a - b).norm() / b.norm() < 1e-5
