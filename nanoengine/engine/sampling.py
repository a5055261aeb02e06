"""A batch's sampling parameters as tensors, and the handle of the tokens they lead to."""

import weakref
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from nanoengine.engine.sequence import Batch, Sequence
from nanoengine.engine.upload import upload
from nanoengine.kernels.binding import Kernels
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

    temperatures, noise: [b] float32; rows: [b] int64, the sequences' places in last_token.
    filters: top_k [b] int64, top_p and min_p [b] float32.
    banned: row and token ids, int64, that must not be chosen: stops before min_tokens.
    """

    temperatures: torch.Tensor
    noise: torch.Tensor
    rows: torch.Tensor
    filters: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    banned: tuple[torch.Tensor, torch.Tensor] | None

    @property
    def plain(self) -> bool:
        """Whether logits are sampled from as they are: no filter, nothing banned."""
        return self.filters is None and self.banned is None

    def filtered(self, logits: torch.Tensor) -> torch.Tensor:
        """[b, vocab] logits with the tokens that must not be chosen at -inf."""
        if self.banned is not None:
            logits = logits.clone()
            logits[self.banned] = -torch.inf
        if self.filters is None:
            return logits
        return sampler.keep_top(logits, self.temperatures, *self.filters)


@dataclass(slots=True)
class SamplingArrays:
    """The same on the host, in the order of SamplingInputs, for a run's one upload.

    filtered, banned: whether the arrays of filters and of banned tokens are among them.
    """

    arrays: list[np.ndarray]
    filtered: bool
    banned: bool

    def uploaded(self, tensors: SequenceOf[torch.Tensor]) -> SamplingInputs:
        """The inputs, of the tensors that the arrays became."""
        temperatures, noise, rows, *more = tensors
        return SamplingInputs(
            temperatures=temperatures,
            noise=noise,
            rows=rows,
            filters=(more[0], more[1], more[2]) if self.filtered else None,
            banned=(more[-2], more[-1]) if self.banned else None,
        )


def sampling_arrays(batch: Batch, vocab_size: int) -> SamplingArrays:
    """Collect the rows' parameters; noise depends on a request's seed and the token's position."""
    seqs = batch.seqs
    same = tuple(map(weakref.ref, seqs))  # what is remembered must not keep requests alive
    known = _parameters(same, tuple([seq.row for seq in seqs]), vocab_size)
    noise = sampler.uniform_noise(known.seeds, [item.end for item in batch.items])
    # copies: whoever gets these arrays, as tensors, may write into them
    arrays = [known.temperatures.copy(), noise, known.rows.copy()]
    arrays += [values.copy() for values in known.filters]
    banned = _banned(batch, vocab_size) if known.min_tokens else ([], [])
    if banned[0]:
        arrays += [np.array(ids, np.int64) for ids in banned]
    return SamplingArrays(arrays, bool(known.filters), bool(banned[0]))


@dataclass(slots=True)
class _Parameters:
    """What stays the same while the same sequences run in the same rows."""

    temperatures: np.ndarray
    rows: np.ndarray
    seeds: np.ndarray
    filters: list[np.ndarray]  # none when no row asks for one
    min_tokens: bool  # whether any row has a minimum


@lru_cache(maxsize=2)  # a step's prefill, and the decode batch that goes on from step to step
def _parameters(
    same: tuple[weakref.ref[Sequence], ...], rows: tuple[int, ...], vocab_size: int
) -> _Parameters:
    seqs = [seq for ref in same if (seq := ref()) is not None]
    params = [seq.params for seq in seqs]
    filters: list[np.ndarray] = []
    if any(p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0 for p in params):
        filters = [
            np.array([min(max(p.top_k, 0), vocab_size) for p in params], np.int64),
            np.array([p.top_p for p in params], np.float32),
            np.array([p.min_p for p in params], np.float32),
        ]
    return _Parameters(
        temperatures=np.array([p.temperature for p in params], np.float32),
        rows=np.array(rows, np.int64),
        seeds=sampler.as_seeds([seq.seed for seq in seqs]),
        filters=filters,
        min_tokens=any(p.min_tokens > 0 for p in params),
    )


def sampling_inputs(batch: Batch, vocab_size: int, device: torch.device) -> SamplingInputs:
    """`sampling_arrays` on the device, by an upload of their own."""
    wanted = sampling_arrays(batch, vocab_size)
    return wanted.uploaded(upload(wanted.arrays, device))


def pick_tokens(
    kernels: Kernels | None,
    logits: torch.Tensor,
    wanted: SamplingInputs,
    last_token: torch.Tensor,
) -> torch.Tensor:
    """[b, vocab] logits -> [b] tokens, also written to the sequences' rows of last_token."""
    if kernels is not None:
        return kernels.sample(
            logits, wanted.temperatures, wanted.noise, wanted.rows, last_token,
            sampler.GREEDY_BELOW,
        )  # fmt: skip
    tokens = sampler.sample(logits, wanted.temperatures, wanted.noise)
    last_token[wanted.rows] = tokens
    return tokens


def _banned(batch: Batch, vocab_size: int) -> tuple[list[int], list[int]]:
    """Row and token of every stop that would come before its request's min_tokens."""
    rows: list[int] = []
    tokens: list[int] = []
    for row, (seq, _, end, _) in enumerate(batch.items):
        if end - seq.num_prompt_tokens < seq.params.min_tokens:
            stops = [token for token in seq.stop_token_ids if token < vocab_size]
            rows += [row] * len(stops)
            tokens += stops
    return rows, tokens
