"""What sampling needs of each row: kept while the batch stays the same, and never longer."""

import gc
import random
import weakref

import numpy as np

from nanoengine.engine import warm_up
from nanoengine.engine.sampling import sampling_arrays
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.layers.sampler import uniform_noise
from nanoengine.sampling_params import SamplingParams

VOCAB = 50


def some_sequence(rng: random.Random, number: int) -> Sequence:
    params = SamplingParams(
        temperature=rng.choice([0.0, 0.5, 0.9]),
        top_k=rng.choice([0, 0, -1, 7, 1000]),
        top_p=rng.choice([1.0, 1.0, 0.8]),
        min_tokens=rng.choice([0, 0, 4]),
    )
    stops = frozenset(rng.sample(range(VOCAB), 2))
    seed = rng.choice([-1, 3, 2**64 - 1])
    return Sequence(f"{number}", [1] * rng.randrange(1, 9), params, 100, seed, stops)


def expected(batch: Batch) -> list[list[float]]:
    seqs, ends = batch.seqs, [item.end for item in batch.items]
    params = [seq.params for seq in seqs]
    arrays = [
        np.array([p.temperature for p in params], np.float32).tolist(),
        uniform_noise([seq.seed for seq in seqs], ends).tolist(),
        [seq.row for seq in seqs],
    ]
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        arrays += [
            [min(max(p.top_k, 0), VOCAB) for p in params],
            np.array([p.top_p for p in params], np.float32).tolist(),
            [0.0] * len(params),
        ]
    early = [
        (row, token)
        for row, (seq, end) in enumerate(zip(seqs, ends, strict=True))
        for token in seq.stop_token_ids
        if end - seq.num_prompt_tokens < seq.params.min_tokens
    ]
    return arrays + [list(column) for column in zip(*early, strict=True)]


def test_every_batch_gets_its_own_parameters() -> None:
    """The same batch some steps long, then other sequences, another order, or other rows."""
    rng = random.Random(5)
    seqs = [some_sequence(rng, i) for i in range(12)]
    filtered, banned = set(), set()
    for _ in range(60):
        chosen = rng.sample(seqs, rng.randrange(1, 5))
        for row, seq in zip(rng.sample(range(8), len(chosen)), chosen, strict=True):
            seq.row = row
        for step in range(rng.randrange(1, 4)):
            ends = [seq.num_prompt_tokens + step for seq in chosen]
            items = [
                ScheduledItem(seq, end - 1, end, emits=True)
                for seq, end in zip(chosen, ends, strict=True)
            ]
            batch = Batch(items, is_prefill=step == 0)
            got = sampling_arrays(batch, VOCAB)
            assert [array.tolist() for array in got.arrays] == expected(batch)
            filtered.add(got.filtered)
            banned.add(got.banned)
    assert filtered == banned == {True, False}


def decode_batch(seqs: list[Sequence]) -> Batch:
    ends = [len(seq) for seq in seqs]
    items = [ScheduledItem(seq, end - 1, end, True) for seq, end in zip(seqs, ends, strict=True)]
    return Batch(items, is_prefill=False)


def test_whoever_gets_the_arrays_may_write_into_them() -> None:
    """A sampler that replaces temperatures in place must not change the next step's."""
    rng = random.Random(1)
    batch = decode_batch([some_sequence(rng, i) for i in range(8)])
    first = sampling_arrays(batch, VOCAB).arrays
    want = [array.tolist() for array in first]
    for array in first:
        array[:] = 1
    assert [array.tolist() for array in sampling_arrays(batch, VOCAB).arrays] == want


def test_what_is_remembered_keeps_no_request_alive() -> None:
    seq = some_sequence(random.Random(2), 0)
    sampling_arrays(decode_batch([seq]), VOCAB)
    alive = weakref.ref(seq)
    del seq
    gc.collect()
    assert alive() is None


def test_the_rehearsal_filters_once() -> None:
    """A filtered batch's logits are float32, which the sampling kernels are compiled for anew."""
    filtered = []

    def run(batch: Batch) -> None:
        if not batch.is_prefill:
            filtered.append(sampling_arrays(batch, VOCAB).filtered)

    warm_up.rehearse(run, budget=64, max_len=128, block_size=16, num_blocks=8)
    assert filtered == [False, True]
