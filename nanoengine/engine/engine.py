"""The step loop: schedule, launch, and apply the tokens of the step before."""

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any, NamedTuple

from nanoengine.config import EngineConfig
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.engine.record import StepRecord
from nanoengine.engine.request import Request, RequestOutput
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.scheduler import Scheduler
from nanoengine.engine.sequence import Batch, Sequence
from nanoengine.engine.tensor_parallel import ParallelRunner
from nanoengine.engine.token_ids import checked_id, checked_ids
from nanoengine.errors import ConfigError, EngineError, RequestError
from nanoengine.models.config import read_model_config
from nanoengine.sampling_params import SamplingParams
from nanoengine.tokenizer import Tokenizer

Prompt = str | SequenceOf[int]


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer; None when it has none (then prompts are token ids)."""
    names = ("tokenizer.json", "tokenizer_config.json")
    return Tokenizer(folder) if any((folder / name).is_file() for name in names) else None


class LaunchedRun(NamedTuple):
    """One run of the model whose tokens have not been read yet."""

    batch: Batch
    tokens: SampledTokens
    record: StepRecord | None


class LLMEngine:
    """Requests in, tokens out; one `step()` at a time.

    With `overlap`, step N+1 is launched before step N's tokens are read, so the host's work hides
    behind the device's. Lengths and slots are exact all the same: an unread token stands as a
    placeholder which the device itself replaces. Stops by length are known ahead; a stop by token
    or text is seen one step late, and that step's token is dropped.

    on_step: called with a StepRecord for every run of the model, once its tokens are known.
    """

    def __init__(
        self,
        folder: Path,
        config: EngineConfig,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self.config = config
        self.on_step = on_step
        self.model_config = read_model_config(folder)
        self._check_lengths()
        self.tokenizer = load_tokenizer(folder)
        runner = ModelRunner if config.tensor_parallel_size == 1 else ParallelRunner
        self.runner = runner(config, self.model_config, folder)
        self.max_model_len = self.runner.max_model_len
        self.requests: dict[str, Request] = {}
        self._ids = itertools.count()
        self._steps = itertools.count()
        self.reset()

    def _check_lengths(self) -> None:
        limit, wanted = self.model_config.max_position_embeddings, self.config.max_model_len
        if wanted is not None and wanted > limit:
            raise ConfigError(
                f"max_model_len={wanted} is beyond the model's max_position_embeddings={limit}: "
                f"use at most {limit}"
            )

    def reset(self) -> None:
        """Abort everything and start with an empty pool; also the way out of a broken step."""
        for request in self.requests.values():
            request.abort()
        self.requests.clear()
        self._in_flight: list[LaunchedRun] = []
        self._abort_soon: list[str] = []
        self._updated: dict[str, RequestOutput] = {}
        self.block_manager = BlockManager(
            self.runner.num_kvcache_blocks,
            self.runner.block_size,
            self.config.enable_prefix_caching,
        )
        self.scheduler = Scheduler(
            self.block_manager,
            self.config.max_num_seqs,
            self.config.max_num_batched_tokens,
            self.config.max_prefill_tokens,
        )

    def close(self) -> None:
        """Abort everything, and end the workers of a tensor-parallel engine."""
        self.reset()
        if isinstance(self.runner, ParallelRunner):
            self.runner.close()

    @property
    def has_unfinished(self) -> bool:
        """Whether `step()` has something to do or to report."""
        return bool(self.scheduler.has_work or self._updated)

    # -- requests ------------------------------------------------------------------------------

    def check(self, prompt: Prompt, params: SamplingParams) -> tuple[list[int], str | None]:
        """A prompt's token ids and text. Raises RequestError when it can never be served."""
        if not isinstance(params, SamplingParams):
            raise RequestError(f"{params!r:.80} is no SamplingParams: make one from its values")
        vocab = self.model_config.vocab_size
        text = prompt if isinstance(prompt, str) else None
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise RequestError("this model has no tokenizer: give the prompt as token ids")
            token_ids = checked_ids(self.tokenizer.encode(prompt), vocab)
        elif isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
            kind = type(prompt).__name__
            raise RequestError(f"prompt {prompt!r:.80} is a {kind}: give text or token ids")
        else:
            token_ids = checked_ids(list(prompt), vocab)
        if not token_ids:
            raise RequestError(f"prompt {prompt!r} holds no tokens: give at least one")
        pool = self.runner.num_kvcache_blocks * self.runner.block_size
        for limit, what in ((self.max_model_len, "max_model_len"), (pool, "the KV pool")):
            if len(token_ids) > limit:
                raise RequestError(
                    f"the prompt has {len(token_ids)} tokens, {what} is {limit} tokens: "
                    "shorten the prompt, or make that limit larger"
                )
        for token in params.stop_token_ids or ():
            checked_id(token, vocab, "stop_token_ids")
        if params.stop_list and self.tokenizer is None:
            raise RequestError(f"stop={params.stop!r} needs a tokenizer, and this model has none")
        return token_ids, text

    def add_request(
        self, prompt: Prompt, params: SamplingParams | None = None, request_id: str | None = None
    ) -> str:
        """Queue a prompt, text or token ids; returns its id. Nothing runs before `step()`.

        Output ends at max_tokens, max_model_len or the size of the KV pool, whichever comes first.
        Raises RequestError when the request can never be served; nothing is queued then.
        """
        params = params or SamplingParams()
        return self.add_checked(*self.check(prompt, params), params, request_id)

    def add_checked(
        self,
        token_ids: list[int],
        text: str | None,
        params: SamplingParams,
        request_id: str | None = None,
    ) -> str:
        """`add_request` of what `check` has returned for these params."""
        if request_id is None:
            names = (f"request-{number}" for number in self._ids)
            request_id = next(name for name in names if name not in self.requests)
        if request_id in self.requests:
            raise RequestError(f"request_id={request_id!r} is in use: choose another")
        # the newest token needs no slot: a full pool still gives one more token
        pool = self.runner.num_kvcache_blocks * self.runner.block_size + 1
        limit = min(len(token_ids) + params.max_tokens, self.max_model_len, pool)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        stop_ids = set(params.stop_token_ids or ())
        if not params.ignore_eos:
            stop_ids.update(self.model_config.eos_token_ids)
        seq = Sequence(request_id, token_ids, params, limit, seed, frozenset(stop_ids))
        output = RequestOutput(request_id, token_ids, text)
        if limit <= len(token_ids):  # the prompt alone fills max_model_len
            output.finish_reason = "length"
            self._updated[request_id] = output
        else:
            self.scheduler.add(seq)
        self.requests[request_id] = Request(seq, output, self.tokenizer)
        return request_id

    def output(self, request_id: str) -> RequestOutput:
        """The output of a request that is queued or running."""
        if request_id not in self.requests:
            raise RequestError(f"request_id={request_id!r} is not running: it ended, or never was")
        return self.requests[request_id].output

    def abort(self, request_id: str) -> None:
        """End a request and free its blocks; an unknown or finished id is ignored."""
        try:
            self._apply()
        except BaseException:  # half applied: as in step()
            self.reset()
            raise
        request = self.requests.pop(request_id, None)
        if request is None:
            return
        if not request.output.finished:
            self.scheduler.finish(request.seq)
        request.abort()
        self._updated[request_id] = request.output

    def abort_soon(self, request_id: str) -> None:
        """Abort when the next step begins: safe in a finalizer, which may run inside a step."""
        self._abort_soon.append(request_id)

    # -- the loop ------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Launch the next step and apply the tokens of the one before (without overlap: its own).

        Returns the outputs that changed. An exception, Ctrl-C included, aborts all requests and
        leaves an empty engine that can be used again.
        """
        try:
            return self._step()
        except BaseException:
            self.reset()
            raise

    def _step(self) -> list[RequestOutput]:
        while self._abort_soon:
            self.abort(self._abort_soon.pop())
        if self._in_flight and self.scheduler.must_preempt():
            self._apply()
        step = self.scheduler.schedule()
        before = len(self._in_flight)
        if step is not None:
            number = next(self._steps)
            launched = [self._launch(batch, number) for batch in step if batch]
            self.scheduler.launched(step)
            self._in_flight += launched
        elif not before and self.scheduler.has_work:
            raise EngineError("nothing can run: a waiting request fits neither rows nor KV blocks")
        self._apply(before)
        if not self.config.overlap:
            self._apply()
        updated, self._updated = list(self._updated.values()), {}
        for output in updated:
            if output.finished:
                self.requests.pop(output.request_id, None)
        if not self.requests:  # only late tokens are in flight: drop them, and free their blocks
            self._apply()
        return updated

    def _launch(self, batch: Batch, number: int) -> LaunchedRun:
        if self.on_step is None:
            return LaunchedRun(batch, self.runner.run(batch), None)
        record = StepRecord(number, batch, launch_start=time.perf_counter())
        tokens = self.runner.run(batch, record)
        record.launch_end = time.perf_counter()
        return LaunchedRun(batch, tokens, record)

    def _apply(self, count: int | None = None) -> None:
        """Read the tokens of the oldest runs in flight (None: all), and end what is finished."""
        for _ in range(len(self._in_flight) if count is None else count):
            if not self._in_flight:  # on_step aborted a request, which applied them all
                return
            batch, handle, record = self._in_flight.pop(0)
            kept: list[int | None] = []
            for item, token in zip(batch.items, handle.tolist(), strict=True):
                wanted = self.scheduler.applied(item, token)
                kept.append(token if wanted else None)
                if wanted:
                    self._append(item.seq, token)
            if record is not None and self.on_step is not None:
                record.tokens, record.applied = kept, time.perf_counter()
                self.on_step(record)

    def _append(self, seq: Sequence, token: int) -> None:
        request = self.requests[seq.request_id]
        output = self._updated[seq.request_id] = request.output
        request.append(token)
        if output.finish_reason is not None:
            self.scheduler.finish(seq, seq.num_prompt_tokens + len(output.token_ids))

    def stats(self) -> dict[str, Any]:
        """Counters for reports and tests: sequences, blocks, preemptions."""
        return {
            "waiting": len(self.scheduler.waiting),
            "running": len(self.scheduler.running),
            "free_blocks": len(self.block_manager.free_block_ids),
            "num_blocks": len(self.block_manager.blocks),
            "preemptions": self.scheduler.num_preemptions,
        }
