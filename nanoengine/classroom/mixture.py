"""The second phase's text: sources mixed in fixed shares, each document read by itself.

In the first phase every document is read equally often, and windows run across documents. For
the second, small talk is read more often than its size would give it, and attention ends where
a document begins: so the model meets every document as it will meet a user's first line.
"""

from collections.abc import Iterator

import numpy as np
import torch

from .data import Encoded, Renderer, Tokens, cut
from .smalltalk import PROJECT_SOURCES

# Shares of the tokens of a batch. The small rest keeps what the first phase has learned.
SHARES = {
    "smalltalk": 0.36, "replies": 0.08, "tales": 0.09, "stories": 0.15, "chitchat": 0.17,
    "chatterbot": 0.01, "austen": 0.07, "web": 0.03, "recipes": 0.04,
}  # fmt: skip


class Mixture:
    """Endless text of each source; documents come in random order, each as often as the others.

    Raises ValueError when `shares` names a source that the text does not have.
    """

    def __init__(
        self, encoded: Encoded, renderer: Renderer, shares: dict[str, float], seed: int
    ) -> None:
        missing = sorted(set(shares) - set(encoded.sources.tolist()))
        if missing:
            raise ValueError(
                f"the text has no source {missing[0]!r}: prepare it with classroom.refine, or "
                "leave the source out of the shares"
            )
        self.renderer, self.shares = renderer, shares
        self.rng = np.random.default_rng([seed, 2])
        documents = list(encoded.documents())
        self.flows = {
            source: self._flow(
                [d for d, s in zip(documents, encoded.sources, strict=True) if s == source],
                whole=source in PROJECT_SOURCES,
            )
            for source in shares
        }

    def _flow(self, documents: list[tuple[bool, list[Tokens]]], whole: bool) -> Iterator[Tokens]:
        """Rendered parts without end; a dialogue of the project is never cut."""
        while True:
            for i in self.rng.permutation(len(documents)):
                dialogue, pieces = documents[i]
                if whole:
                    parts = [self.renderer.whole(dialogue, pieces)]
                elif dialogue:
                    cuts = cut(pieces, 2, 12, self.rng)
                    parts = [self.renderer.dialogue(turns) for turns in cuts]
                else:
                    cuts = cut(pieces[0], 200, 1200, self.rng)
                    parts = [self.renderer.prose(np.array(piece)) for piece in cuts]
                yield from (np.array(part, np.uint16) for part in parts)

    def stream(self, tokens: int) -> Tokens:
        """About so many tokens, at least, in the given shares, the parts in random order."""
        parts: list[Tokens] = []
        for source, share in self.shares.items():
            wanted = tokens * share / sum(self.shares.values())
            while wanted > 0:
                parts.append(next(self.flows[source]))
                wanted -= len(parts[-1])
        return np.concatenate([parts[i] for i in self.rng.permutation(len(parts))])


def same_document(ids: torch.Tensor, end: int) -> torch.Tensor:
    """Which earlier tokens each token may see: bool [batch, 1, length, length] from ids.

    A token sees itself and what stands before it in its own document, which ends with the token
    `end`. With end = 0 the row 5 0 7 8 gives 8 two tokens to see, 7 and itself.
    """
    ends = (ids == end).long()
    document = torch.cumsum(ends, 1) - ends  # the end mark belongs to the document it closes
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
    return ((document[:, :, None] == document[:, None, :]) & causal)[:, None]
