"""A batch's sampling parameters as tensors, and the handle of the tokens they lead to."""

from dataclasses import dataclass

import torch

from nanoengine.engine.sequence import Batch
from nanoengine.layers import sampler


class SampledTokens:
    """[b] tokens of one run, on the device; reading them waits for the run."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self._host = tokens
        self._ready: torch.cuda.Event | None = None
        if tokens.is_cuda:
            self._host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            self._host.copy_(tokens, non_blocking=True)
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record()

    def tolist(self) -> list[int]:
        """The tokens as numbers, as soon as the run that made them has finished."""
        if self._ready is not None:
            self._ready.synchronize()
        values: list[int] = self._host.tolist()
        return values


@dataclass(slots=True)
class SamplingInputs:
    """What sampling needs of each row; the filters are None when no row asks for one.

    banned: (rows, token ids) that must not be chosen: stops before min_tokens.
    """

    temperatures: torch.Tensor
    noise: torch.Tensor
    filters: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    banned: tuple[list[int], list[int]]

    def filtered(self, logits: torch.Tensor) -> torch.Tensor:
        """[b, vocab] logits with the tokens that must not be chosen at -inf."""
        if self.banned[0]:
            logits = logits.clone()
            logits[self.banned] = -torch.inf
        if self.filters is None:
            return logits
        return sampler.keep_top(logits, self.temperatures, *self.filters)


def sampling_inputs(batch: Batch, vocab_size: int, device: torch.device) -> SamplingInputs:
    """Collect the rows' parameters; noise depends on a request's seed and the token's position."""
    params = [item.seq.params for item in batch.items]
    seeds = [item.seq.seed for item in batch.items]
    filters = None
    if any(p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0 for p in params):
        filters = (
            torch.tensor([max(p.top_k, 0) for p in params], device=device),
            torch.tensor([p.top_p for p in params], dtype=torch.float32, device=device),
            torch.tensor([p.min_p for p in params], dtype=torch.float32, device=device),
        )
    banned: tuple[list[int], list[int]] = ([], [])
    for row, (seq, _, end, _) in enumerate(batch.items):
        if end - seq.num_prompt_tokens < seq.params.min_tokens:
            for token in seq.stop_token_ids:
                if token < vocab_size:
                    banned[0].append(row)
                    banned[1].append(token)
    noise = sampler.uniform_noise(seeds, [item.end for item in batch.items])
    temperatures = [p.temperature for p in params]
    return SamplingInputs(
        temperatures=torch.tensor(temperatures, dtype=torch.float32, device=device),
        noise=torch.from_numpy(noise).to(device),
        filters=filters,
        banned=banned,
    )
