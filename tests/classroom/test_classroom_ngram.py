"""The 5-gram baseline: a proper distribution, and no weaker than it should be."""

import numpy as np
import pytest

from nanoengine.classroom.ngram import KneserNey


def stream(count: int, vocabulary: int, seed: int) -> np.ndarray:
    """A noisy cycle: mostly the next token follows, now and then any."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, vocabulary, count)
    return np.where(rng.random(count) < 0.2, noise, np.arange(count) % vocabulary).astype(np.int64)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_probabilities_sum_to_one_in_any_context(order: int) -> None:
    model = KneserNey(stream(2000, 11, 0), 12, order)  # token 11 never occurs
    for context in ([], [3], [1, 2, 3, 4], [11, 0], [5, 5, 5, 5], [0, 11, 1, 2, 3]):
        last = [model.nats(np.array([*context, token]))[-1] for token in range(12)]
        assert np.exp(-np.array(last)).sum() == pytest.approx(1.0)


def test_longer_contexts_help_on_text_with_structure() -> None:
    train, test = stream(20_000, 30, 0), stream(4000, 30, 1)
    unigram, bigram = (KneserNey(train, 30, order).nats(test).mean() for order in (1, 2))
    assert bigram < 0.6 * unigram
    assert KneserNey(train, 30, 5).nats(test).mean() < 1.05 * bigram


def test_hand_computed_unigram() -> None:
    # 6 a, 3 b, 2 c, 1 d, 1 e: n1=2, n2=1, n3=1, n4=1 (at least), so Y=1/2,
    # D1 = 1-2*.5*1/2 = .5, D2 = 2-3*.5*1/1 = .5, D3 = 3-4*.5*1/1 = 1
    model = KneserNey(np.array([0] * 6 + [1] * 3 + [2] * 2 + [3, 4]), 6, 1)
    removed = (1 + 1 + 0.5 + 0.5 + 0.5) / 13
    expected = [(6 - 1) / 13 + removed / 6, (2 - 0.5) / 13 + removed / 6, removed / 6]
    assert np.exp(-model.nats(np.array([0, 2, 5]))) == pytest.approx(expected)


def test_too_little_text() -> None:
    with pytest.raises(ValueError, match="give more text"):
        KneserNey(np.arange(5), 10)
