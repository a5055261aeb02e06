"""Known faults of relatives that only a GPU can show (tests/trust/known_faults.py has the rest)."""

import pytest
import torch
from gpu.conftest import prompts

from nanoengine import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)


@pytest.mark.parametrize("eager", [False, True])
def test_output_ends_at_max_model_len_under_graphs(make_llm, eager):
    """A longer table than the captured one was a shape error (nano-vllm #106, #146)."""
    llm = make_llm(max_model_len=300, enforce_eager=eager)
    outputs = llm.generate(prompts([290, 299, 300, 5]), GREEDY, use_tqdm=False)
    assert [len(out.token_ids) for out in outputs] == [10, 1, 0, 295]
    assert {out.finish_reason for out in outputs} == {"length"}
    stats = llm.engine.stats()
    assert stats["free_blocks"] == stats["num_blocks"]


@pytest.mark.parametrize("heads", [8, 3])
def test_offsets_beyond_32_bits(heads):
    """Once a layer's cache has 2**31 elements, 32-bit offsets wrap (vllm #50483); a row of 3 heads
    is no power of two (mojo_opset PR #336)."""
    from nanoengine.kernels.store import store_kvcache

    block, dim = 256, 128
    blocks = 2**31 // (block * heads * dim) + 2
    size = 2 * 2 * blocks * block * heads * dim
    if torch.cuda.mem_get_info()[0] < size + (1 << 30):
        pytest.skip(f"needs {size >> 30} GiB")
    cache = torch.zeros(2, blocks, block, heads, dim, dtype=torch.bfloat16, device="cuda")
    slots = torch.tensor([blocks * block - 1, 0, -1, (blocks - 1) * block], dtype=torch.int32)
    k, v = torch.randn(2, 4, heads, dim, device="cuda").bfloat16()
    store_kvcache(k, v, cache[0], cache[1], slots.cuda())
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            assert torch.equal(cache[0].view(-1, heads, dim)[slot], k[row])
            assert torch.equal(cache[1].view(-1, heads, dim)[slot], v[row])
    assert int((cache != 0).any(dim=-1).any(dim=-1).sum()) == 2 * 3


def test_seeds_do_not_depend_on_the_batch(make_llm):
    """The same seed alone twice, and eight times beside unseeded ones.

    Between batch sizes bfloat16 logits differ, and with them a rare token; within one they do not.
    """
    llm = make_llm(enforce_eager=True)
    (prompt,) = prompts([40])
    seeded = SamplingParams(seed=3, max_tokens=32, ignore_eos=True)
    free = SamplingParams(max_tokens=32, ignore_eos=True)
    alone = llm.generate(prompt, seeded, use_tqdm=False)[0].token_ids
    for _ in range(2):
        again = llm.generate(prompt, seeded, use_tqdm=False)[0].token_ids
        assert again == alone
    params = [seeded if i % 2 else free for i in range(16)]
    outputs = llm.generate([prompt] * 16, params, use_tqdm=False)
    same = {tuple(out.token_ids) for out in outputs[1::2]}
    assert len(same) == 1  # among themselves they are equal bit for bit
    assert len({tuple(out.token_ids) for out in outputs[::2]}) == 8


def test_a_thousand_aborts(make_llm):
    import random

    pick = random.Random(0)
    llm = make_llm(num_kvcache_blocks=40)
    engine, open_ids, aborts = llm.engine, [], 0
    while aborts < 1000:
        for prompt in prompts([pick.randint(1, 300) for _ in range(pick.randint(0, 8))]):
            open_ids.append(engine.add_request(prompt, GREEDY))
        for _ in range(pick.randint(0, 6)):
            if open_ids:
                engine.abort(open_ids.pop(pick.randrange(len(open_ids))))
                aborts += 1
        engine.step()
    for request_id in open_ids:
        engine.abort(request_id)
    engine.step()
    stats = engine.stats()
    assert stats["free_blocks"] == stats["num_blocks"]
    assert not engine.requests
