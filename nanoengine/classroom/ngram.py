"""The baseline that the model must beat: a 5-gram model with modified Kneser-Ney smoothing.

Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998),
section 3: interpolated, three discounts an order, continuation counts in the lower orders. It
reads the same token stream as the neural model, so bits per byte compare directly; it also
serves as a byte-level baseline, with 256 bytes as its tokens.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ORDER = 5


@dataclass(frozen=True)
class _Level:
    """The n-grams of one order, and what each context passes on to the order below."""

    keys: Ints  # sorted; context id * vocabulary + last token
    discounted: Floats  # of each n-gram: (count - discount) / total of its context
    left_over: Floats  # of each context: the weight of the order below
    has_context: npt.NDArray[np.bool_]  # of each context id: was it seen with a follower


def _lookup(keys: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(index in `keys`, is it there) for each wanted key; the index is 0 where it is not."""
    index = np.searchsorted(keys, wanted)
    index[index == len(keys)] = 0
    found = keys[index] == wanted
    return np.where(found, index, 0), found


def _discounts(counts: Ints) -> Floats:
    """D1, D2, D3+ from the counts of counts (equation 17 of the paper)."""
    n1, n2, n3, n4 = (max(int((counts == c).sum()), 1) for c in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    return np.clip([1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3], 0.1, None)


class KneserNey:
    """An n-gram model of a stream of token ids in [0, vocabulary)."""

    def __init__(self, stream: Ints, vocabulary: int, order: int = ORDER) -> None:
        if len(stream) < 2 * order:
            raise ValueError(f"{len(stream)} tokens are too few for {order}-grams: give more text")
        self.vocabulary, self.order = vocabulary, order
        self.levels: list[_Level] = []
        stream = stream.astype(np.int64)
        # ids[i]: the id of the n-gram that ends at position i (of the positions that have one)
        context = np.zeros(len(stream), np.int64)  # id of the (n-1)-gram before position i
        grams = []
        for n in range(1, order + 1):
            keys, first, inverse, counts = np.unique(
                context[n - 1 :] * vocabulary + stream[n - 1 :],
                return_index=True, return_inverse=True, return_counts=True,
            )  # fmt: skip
            ids = np.full(len(stream), -1, np.int64)
            ids[n - 1 :] = inverse
            grams.append((keys, first + n - 1, ids, counts))
            context = np.concatenate([[-1], ids[:-1]])
        for n, (keys, _, ids, counts) in enumerate(grams, 1):
            if n < order:  # in how many different words' company was it seen?
                firsts = grams[n][1]
                counts = np.maximum(np.bincount(ids[firsts], minlength=len(keys)), 1)
            contexts = 1 if n == 1 else len(grams[n - 2][0])
            self.levels.append(_level(keys, counts, vocabulary, contexts))

    def nats(self, stream: Ints) -> Floats:
        """-ln p of each token given the up to order-1 tokens before it in the stream."""
        stream = stream.astype(np.int64)
        p = np.full(len(stream), 1 / self.vocabulary)
        context = np.zeros(len(stream), np.int64)
        known = np.ones(len(stream), bool)  # was the context seen in training?
        for level in self.levels:
            usable = known & level.has_context[context]
            index, found = _lookup(level.keys, context * self.vocabulary + stream)
            higher = np.where(found & usable, level.discounted[index], 0.0)
            p = np.where(usable, higher + level.left_over[context] * p, p)
            known = np.concatenate([[False], (found & known)[:-1]])
            context = np.concatenate([[0], index[:-1]])
        nats: Floats = -np.log(p)
        return nats


def _level(keys: Ints, counts: Ints, vocabulary: int, contexts: int) -> _Level:
    discounts = _discounts(counts)
    taken = discounts[np.minimum(counts, 3) - 1]
    owner = keys // vocabulary
    totals = np.bincount(owner, weights=counts, minlength=contexts)
    removed = np.bincount(owner, weights=taken, minlength=contexts)
    seen = totals > 0
    safe = np.where(seen, totals, 1.0)
    return _Level(keys, (counts - taken) / safe[owner], removed / safe, seen)
