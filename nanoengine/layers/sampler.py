"""From logits to tokens: greedy, temperature, top-k, top-p, min-p.

Randomness comes in as an argument, one number in [0, 1) a row, so that sampling is a plain
function: the same logits and numbers give the same tokens on every device and in every batch.
"""

import numpy as np
import numpy.typing as npt
import torch

GREEDY_BELOW = 1e-5  # temperatures below are greedy: dividing by them would overflow float32
_BLOCK = 4096  # vocabulary entries summed at once; see sample()


def as_seeds(seeds: list[int]) -> npt.NDArray[np.uint64]:
    """[b] seeds of any sign as 64-bit numbers, for `uniform_noise`."""
    return np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)


def uniform_noise(
    seeds: list[int] | npt.NDArray[np.uint64], positions: list[int]
) -> npt.NDArray[np.float32]:
    """[b] float32 in [0, 1): a pure function of each request's seed and the token's position.

    A counter-based generator (SplitMix64; Steele, Lea and Flood 2014): the seed is mixed to a
    stream's start, the position counts along it, and another mix gives the number. So a token
    depends on nothing that else is in the batch, nor on how it came to be computed.
    """
    seed = as_seeds(seeds) if isinstance(seeds, list) else seeds
    counter = np.array(positions, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        mixed = _mix(_mix(seed) + counter * np.uint64(0x9E3779B97F4A7C15))
    return ((mixed >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def sample(logits: torch.Tensor, temperatures: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """One token a row: [b, vocab] logits, [b] temperatures, [b] numbers in [0, 1) -> [b] int64.

    Temperature 0 gives the first largest logit. Otherwise the number is looked up in the
    cumulated distribution softmax(logits / temperature): token i is chosen when the number falls
    between the probabilities summed before i (included) and those up to i (excluded). With
    probabilities [0.5, 0.2, 0.3], 0.6 chooses token 1. A token of logit -inf is never chosen, and
    no rounding leads out of the vocabulary.
    """
    greedy = logits.argmax(dim=-1)
    cold = temperatures < GREEDY_BELOW
    if logits.device.type == "cpu" and bool(cold.all()):  # on a GPU the question would cost a wait
        return greedy
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    weights = torch.exp(scaled - scaled.amax(dim=-1, keepdim=True))  # [b, vocab], largest is 1
    # Two levels, blocks first, then inside the block that was hit: fewer roundings, and a GPU
    # kernel can do the same.
    padding = -weights.shape[1] % _BLOCK
    weights = torch.nn.functional.pad(weights, (0, padding)).view(len(logits), -1, _BLOCK)
    block_sums = weights.sum(dim=-1).double().cumsum(dim=-1)  # [b, blocks]
    target = noise.double()[:, None] * block_sums[:, -1:]
    block = (block_sums <= target).sum(dim=-1)  # one of them: noise < 1, so target < the last sum
    rows = torch.arange(len(logits), device=logits.device)
    before = torch.where(block > 0, block_sums[rows, block - 1], 0.0)[:, None]
    inside = before + weights[rows, block].double().cumsum(dim=-1)  # [b, _BLOCK]
    # Rounding may put the target past the last entry of the block: take the last possible token.
    last = _BLOCK - 1 - (weights[rows, block].flip(-1) > 0).int().argmax(dim=-1)
    offset = torch.minimum((inside <= target).sum(dim=-1), last)
    return torch.where(cold, greedy, block * _BLOCK + offset)


def keep_top(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
) -> torch.Tensor:
    """Logits with every token outside top-k, top-p or min-p set to -inf; [b, vocab] float32.

    top_k: [b] int64, 0 keeps all; top_p, min_p: [b] float32. In that order, as vLLM does it, and
    after the temperature. The token that crosses top_p is kept: of [0.1, 0.2, 0.3, 0.4], top_p
    0.6 keeps 0.4 and 0.3. At least one token always stays.
    """
    cold = temperatures < GREEDY_BELOW
    scaled = logits.float() / torch.where(cold, 1.0, temperatures)[:, None]
    order = scaled.argsort(dim=-1, descending=True, stable=True)
    ranked = scaled.gather(-1, order)  # [b, vocab], largest first
    rank = torch.arange(logits.shape[1], device=logits.device)
    ranked = ranked.masked_fill((top_k > 0)[:, None] & (rank >= top_k[:, None]), -torch.inf)
    probs = ranked.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs
    drop = (before >= top_p[:, None]) & (top_p < 1.0)[:, None]
    drop |= probs < min_p[:, None] * probs[:, :1]
    drop[:, 0] = False
    dropped = torch.empty_like(drop).scatter_(-1, order, drop | ranked.isneginf())
    return logits.float().masked_fill(dropped, -torch.inf)
