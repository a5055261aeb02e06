"""Sampling as a function of logits and noise: right distribution, right edges, right filters."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoengine.layers.sampler import keep_top, sample, uniform_noise


def draw(logits: torch.Tensor, count: int, temperature: float = 1.0, seed: int = 0) -> torch.Tensor:
    """`count` tokens of one distribution, each with its own noise."""
    noise = torch.from_numpy(uniform_noise([seed] * count, list(range(count))))
    parts = noise.split(500)
    return torch.cat(
        [sample(logits.expand(len(n), -1), torch.full(n.shape, temperature), n) for n in parts]
    )


def chi_square(tokens: torch.Tensor, probs: torch.Tensor) -> float:
    """Pearson's statistic over the tokens that are expected at least five times."""
    observed = torch.bincount(tokens, minlength=len(probs)).double()
    expected = probs.double() * len(tokens)
    often = expected >= 5
    return float(((observed - expected)[often] ** 2 / expected[often]).sum())


def bound(cells: int) -> float:
    """Mean of a chi-square distribution plus six standard deviations."""
    return cells + 6 * math.sqrt(2 * cells)


@pytest.mark.parametrize(("vocab", "temperature"), [(7, 1.0), (50, 0.6), (300, 2.0), (9000, 1.0)])
def test_tokens_follow_the_softmax(vocab: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(vocab, generator=generator) * 1.5
    probs = (logits / temperature).softmax(-1)
    count = 3_000
    tokens = draw(logits, count, temperature)
    assert chi_square(tokens, probs) < bound(int((probs * count >= 5).sum()))
    wrong = (logits / (temperature * 1.5)).softmax(-1)  # the test itself can tell
    assert chi_square(tokens, wrong) > bound(int((wrong * count >= 5).sum()))


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=40),
    st.floats(0, 1, exclude_max=True, width=32),
)
@settings(deadline=None)
def test_the_number_is_looked_up_in_the_cumulated_distribution(
    values: list[float], number: float
) -> None:
    probs = np.exp(np.array(values) - max(values))
    cumulated = np.cumsum(probs) / probs.sum()
    token = int(sample(torch.tensor([values]), torch.ones(1), torch.tensor([number]))[0])
    low = cumulated[token - 1] if token else 0.0
    assert low - 1e-6 <= number <= cumulated[token] + 1e-6


def test_the_documented_example() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.3]]).log().expand(5, -1)
    noise = torch.tensor([0.0, 0.49, 0.6, 0.71, 0.999999])
    assert sample(logits, torch.ones(5), noise).tolist() == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("vocab", [3, 4096, 4097, 10_000])
@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-24])
def test_impossible_tokens_are_never_chosen(vocab: int, number: float) -> None:
    """Neither masked ones at either end, nor the padding behind the vocabulary."""
    logits = torch.full((1, vocab), -torch.inf)
    possible = [1] if vocab == 3 else [1, vocab // 2]
    logits[0, possible] = torch.tensor([-3.0, -50.0])[: len(possible)]
    token = int(sample(logits, torch.ones(1), torch.tensor([number]))[0])
    assert token in possible


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0, 2.0], [3.0, 3.0, 3.0, 3.0]])
    assert sample(logits, torch.zeros(2), torch.tensor([0.9, 0.9])).tolist() == [1, 0]


def test_a_mixed_batch_gives_each_row_what_it_would_get_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 100, generator=generator) * 3
    temperatures = torch.tensor([0.0, 1.0, 0.0, 0.3, 5.0, 1e-6])
    noise = torch.rand(6, generator=generator)
    together = sample(logits, temperatures, noise)
    alone = [
        int(sample(logits[i : i + 1], temperatures[i : i + 1], noise[i : i + 1])[0])
        for i in range(6)
    ]
    assert together.tolist() == alone
    assert [alone[i] for i in (0, 2, 5)] == logits.argmax(-1)[[0, 2, 5]].tolist()


@pytest.mark.parametrize("scale", [1.0, 1e4, 65504.0])
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-5, 1e-4])
def test_cold_temperatures_and_large_logits_are_no_nan(scale: float, temperature: float) -> None:
    logits = torch.tensor([[0.1, 0.9, -1.0, 0.3]]) * scale
    for number in (0.0, 0.5, 1 - 2**-24):
        row = sample(logits, torch.tensor([temperature]), torch.tensor([number]))
        if scale * 0.6 / max(temperature, 1e-6) > 100:
            assert row.tolist() == [1]


def test_half_precision_logits_are_sampled_in_float32() -> None:
    logits = torch.randn(300, generator=torch.Generator().manual_seed(1)).bfloat16()
    tokens = draw(logits, 3_000)
    probs = logits.float().softmax(-1)
    assert chi_square(tokens, probs) < bound(int((probs * 3_000 >= 5).sum()))


class TestNoise:
    """Counter-based: a function of seed and position."""

    def test_it_is_a_function_of_its_row(self) -> None:
        seeds, positions = [3, 4, 3, -1, 2**64 - 1], [1, 1, 2, 9, 9]
        noise = uniform_noise(seeds, positions)
        assert noise.dtype == np.float32
        assert noise.tolist() == [float(uniform_noise([s], [p])[0])
                                  for s, p in zip(seeds, positions, strict=True)]  # fmt: skip
        assert noise[3] == noise[4]
        assert len(set(noise[:4].tolist())) == 4

    def test_it_never_reaches_one(self) -> None:
        noise = uniform_noise([1] * 200_000, list(range(200_000)))
        assert 0.0 <= noise.min() < 1e-4
        assert 1 - 1e-4 < noise.max() < 1.0

    @pytest.mark.parametrize("along", ["position", "seed"])
    def test_it_is_uniform_and_uncorrelated(self, along: str) -> None:
        count = 50_000
        numbers, same = list(range(count)), [5] * count
        noise = uniform_noise(*((same, numbers) if along == "position" else (numbers, same)))
        cells = np.bincount((noise * 100).astype(int), minlength=100)
        assert ((cells - count / 100) ** 2 / (count / 100)).sum() < bound(100)
        # neighbours, and neighbours of neighbours, know nothing of each other
        for lag in (1, 2, 16):
            pairs = (noise[:-lag] * 10).astype(int) * 10 + (noise[lag:] * 10).astype(int)
            cells = np.bincount(pairs, minlength=100)
            expected = len(pairs) / 100
            assert ((cells - expected) ** 2 / expected).sum() < bound(100)


def kept(
    probs: list[float], *, k: int = 0, p: float = 1.0, m: float = 0.0, temperature: float = 1.0
) -> list[int]:
    """Tokens that the filters leave."""
    logits = torch.tensor([probs]).log()
    out = keep_top(
        logits,
        torch.tensor([temperature]),
        torch.tensor([k]),
        torch.tensor([p]),
        torch.tensor([m]),
    )
    left = ~out[0].isneginf()
    assert torch.equal(out[0][left], logits[0][left])  # what is kept is not changed
    return left.nonzero().flatten().tolist()


class TestFilters:
    """Top-k, top-p, min-p."""

    PROBS = [0.1, 0.2, 0.3, 0.4]  # noqa: RUF012

    def test_the_token_that_crosses_top_p_is_kept(self) -> None:
        assert kept(self.PROBS, p=0.6) == [2, 3]
        assert kept(self.PROBS, p=0.39) == [3]
        assert kept(self.PROBS, p=0.75) == [1, 2, 3]

    def test_top_k(self) -> None:
        assert kept(self.PROBS, k=2) == [2, 3]
        for k in (0, 4, 100):
            assert kept(self.PROBS, k=k) == [0, 1, 2, 3]

    def test_min_p(self) -> None:
        assert kept(self.PROBS, m=0.6) == [2, 3]
        assert kept(self.PROBS, m=0.45) == [1, 2, 3]

    @pytest.mark.parametrize("options", [{"p": 1e-6}, {"k": 1}, {"m": 1.0}])
    def test_one_token_always_stays(self, options: dict[str, float]) -> None:
        assert kept(self.PROBS, **options) == [3]  # type: ignore[arg-type]

    def test_ties_are_broken_by_the_index(self) -> None:
        assert kept([0.25, 0.25, 0.25, 0.25], k=2) == [0, 1]
        assert kept([0.25, 0.25, 0.25, 0.25], m=1.0) == [0, 1, 2, 3]

    def test_the_temperature_comes_first(self) -> None:
        assert kept(self.PROBS, p=0.6, temperature=0.3) == [3]
        assert kept(self.PROBS, p=0.6, temperature=50.0) == [1, 2, 3]

    def test_top_p_of_what_top_k_left(self) -> None:
        # of [.4, .3] the first is 0.57: alone it reaches 0.5, but not 0.5 of the whole
        assert kept(self.PROBS, k=2, p=0.5) == [3]
        assert kept(self.PROBS, p=0.5) == [2, 3]

    @given(st.data())
    @settings(max_examples=150, deadline=None)
    def test_against_an_oracle(self, data: st.DataObject) -> None:
        raw = data.draw(st.lists(st.integers(1, 1000), min_size=2, max_size=12, unique=True))
        k, p = data.draw(st.integers(0, 13)), data.draw(st.integers(1, 100)) / 100 - 0.0037
        m = data.draw(st.integers(0, 100)) / 100 * 0.997
        order = sorted(range(len(raw)), key=lambda i: -raw[i])[: k or None]
        total, before, left = sum(raw[i] for i in order), 0.0, []
        for i in order:
            if before / total < p and raw[i] >= m * raw[order[0]]:
                left.append(i)
            before += raw[i]
        probs = [x / sum(raw) for x in raw]
        assert kept(probs, k=k, p=p, m=m) == sorted(left or order[:1])

    def test_every_row_has_its_own(self) -> None:
        logits = torch.tensor([self.PROBS] * 3).log()
        out = keep_top(
            logits,
            torch.ones(3),
            torch.tensor([1, 0, 0]),
            torch.tensor([1.0, 0.6, 1.0]),
            torch.zeros(3),
        )
        assert (~out.isneginf()).sum(-1).tolist() == [1, 2, 4]
