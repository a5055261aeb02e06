"""A decode step on the kernels: one that fills the graph's buffers, and the captured sampler."""

import pytest
import tiny_models
import torch

from nanoengine import LLM, SamplingParams
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.kernels.capability import Capability
from nanoengine.kernels.gpu import GpuKernels

if torch.cuda.is_available():
    pytest.skip("tests/gpu runs whole engines on a GPU", allow_module_level=True)

COUNT = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save(tmp_path_factory.mktemp("qwen3"), "qwen3")


def tokens(folder, kernels=None, **options):
    """Greedy and sampled requests that end one after another; the model itself in plain torch."""
    params = [
        SamplingParams(temperature=0.9 * (i % 2), max_tokens=2 + i, seed=i, ignore_eos=True,
                       top_k=3 if i == 2 else 0)
        for i in range(COUNT)
    ]  # fmt: skip
    with LLM(folder, device="cpu", num_kvcache_blocks=64, max_num_seqs=COUNT, max_model_len=64,
             **options) as llm:  # fmt: skip
        runner = llm.engine.runner
        if kernels is not None:
            runner.kernels = kernels
            runner._capture_graphs()
        texts = tiny_models.random_prompts([3 + i % 4 for i in range(COUNT)])
        return [out.token_ids for out in llm.generate(texts, params, use_tqdm=False)]


@pytest.mark.parametrize("overlap", [True, False])
def test_the_tokens_are_those_of_plain_torch(folder, monkeypatch, overlap):
    expected = tokens(folder, enforce_eager=True, overlap=overlap)
    monkeypatch.setattr(ModelRunner, "_stages_by_kernel", True)
    calls = []
    stage, resolve = GpuKernels.stage_decode, GpuKernels.resolve_placeholders
    monkeypatch.setattr(
        GpuKernels, "stage_decode", lambda *args: calls.append("stage") or stage(*args)
    )
    monkeypatch.setattr(
        GpuKernels, "resolve_placeholders", lambda *args: calls.append("resolve") or resolve(*args)
    )
    kernels = GpuKernels(Capability(pdl=False))
    assert tokens(folder, kernels, enforce_eager=False, overlap=overlap) == expected
    assert set(calls) == {"stage"}  # which resolves on its way
    assert len(calls) == COUNT


def test_a_batch_beyond_the_graphs_is_resolved_before(folder, monkeypatch):
    monkeypatch.setattr(ModelRunner, "_stages_by_kernel", True)
    kernels = GpuKernels(Capability(pdl=False))
    options = {"enforce_eager": False, "graph_max_batch": 2}
    assert tokens(folder, kernels, **options) == tokens(folder, enforce_eager=True)
