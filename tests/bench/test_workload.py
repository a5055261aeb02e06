"""The workload is the article's, draw for draw."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.bench.workload import make_workload, same_length_workload, with_fresh_ids


def test_it_has_the_articles_totals() -> None:
    work = make_workload()
    assert len(work) == 256
    assert sum(len(prompt) for prompt, _ in work) == 142_827
    assert sum(count for _, count in work) == 133_966


def test_it_draws_in_the_articles_order() -> None:
    random.seed(0)
    prompts = [
        [random.randint(0, 10000) for _ in range(random.randint(100, 1024))] for _ in range(256)
    ]
    outputs = [random.randint(100, 1024) for _ in range(256)]
    assert make_workload() == list(zip(prompts, outputs, strict=True))


def test_it_leaves_the_global_generator_alone() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    make_workload(num_requests=3)
    assert random.random() == expected


@given(
    seed=st.integers(0, 100),
    count=st.integers(0, 9),
    low=st.integers(1, 20),
    more=st.integers(0, 20),
    vocab=st.integers(1, 20000),
)
def test_lengths_and_ids_stay_in_their_ranges(
    seed: int, count: int, low: int, more: int, vocab: int
) -> None:
    work = make_workload(seed, count, low, low + more, vocab, min_output=3, max_output=4)
    whole = make_workload(seed, count, low, low + more, min_output=3, max_output=4)
    assert len(work) == count
    for (prompt, output), (uncut, _) in zip(work, whole, strict=True):
        assert low <= len(prompt) <= low + more
        assert output in (3, 4)
        assert prompt == [token % vocab for token in uncut]


def test_one_length_range_serves_both() -> None:
    assert all(5 <= n <= 6 for _, n in make_workload(num_requests=50, min_len=5, max_len=6))


@pytest.mark.parametrize("vocab", [7, 20000])
def test_fresh_ids_keep_lengths_and_differ_by_seed(vocab: int) -> None:
    work = make_workload(num_requests=8, min_len=20, max_len=30, vocab_size=vocab)
    one, two = with_fresh_ids(work, 1, vocab), with_fresh_ids(work, 2, vocab)
    assert one == with_fresh_ids(work, 1, vocab)
    for (a, n), (b, m), (old, wanted) in zip(one, two, work, strict=True):
        assert len(a) == len(b) == len(old)
        assert n == m == wanted
        assert a != b
        assert a != old
        assert all(0 <= token < vocab for token in a)


def test_probes_are_equal_requests() -> None:
    assert same_length_workload(2, 3, 4) == [([0, 0, 0], 4)] * 2
