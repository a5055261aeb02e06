"""LLM: what users call."""

import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from types import TracebackType
from typing import Any

from tqdm import tqdm

from nanoengine.config import EngineConfig
from nanoengine.engine.engine import LLMEngine, Prompt
from nanoengine.engine.record import StepRecord
from nanoengine.engine.request import RequestOutput
from nanoengine.errors import EngineError, RequestError
from nanoengine.sampling_params import SamplingParams
from nanoengine.sources import resolve_model


class LLM:
    """A model, ready to generate.

    model: None (the classroom model), "smollm2", a Hugging Face folder, or a hub id.
    on_step: called with a StepRecord after every run of the model.
    options: the fields of EngineConfig; an unknown one is refused.

    >>> llm = LLM()                                                     # doctest: +SKIP
    >>> llm.generate(["Hello"], SamplingParams(temperature=0))[0].text  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        on_step: Callable[[StepRecord], None] | None = None,
        **options: Any,
    ) -> None:
        config = EngineConfig.from_kwargs(model=model, **options)
        self._engine: LLMEngine | None = LLMEngine(resolve_model(model), config, on_step)

    @property
    def engine(self) -> LLMEngine:
        """The engine below. Raises EngineError after `close()`."""
        if self._engine is None:
            raise EngineError("this LLM is closed: make a new one")
        return self._engine

    def generate(
        self,
        prompts: Prompt | SequenceOf[Prompt],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete one or many prompts (texts or lists of token ids); outputs in their order.

        sampling_params: one for all, or one a prompt. Every prompt is checked before any is
        queued. An exception or Ctrl-C ends these requests and leaves the engine usable.
        """
        engine = self.engine
        many = _as_list(prompts)
        params = _match(sampling_params, len(many))
        checked = []
        for index, (prompt, wanted) in enumerate(zip(many, params, strict=True)):
            try:
                checked.append(engine.check(prompt, wanted))
            except RequestError as error:
                raise RequestError(f"prompt {index}: {error}") from None
        ids: list[str] = []
        try:
            for (token_ids, text), wanted in zip(checked, params, strict=True):
                ids.append(engine.add_checked(token_ids, text, wanted))
            running = outputs = [engine.output(i) for i in ids]
            with tqdm(total=len(ids), desc="Generating", disable=not use_tqdm) as bar:
                while running:
                    engine.step()
                    before = len(running)
                    running = [output for output in running if output.finish_reason is None]
                    bar.update(before - len(running))
        except BaseException:
            for request_id in ids:
                engine.abort(request_id)
            raise
        return outputs

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> "TextStream":
        """Text pieces of one prompt's completion, as they come; they add up to its text.

        Other streams and `generate` may run in between. Closing the stream aborts the request.
        """
        return TextStream(self.engine, self.engine.add_request(prompt, sampling_params))

    def abort(self, request_id: str) -> None:
        """End a running request; its blocks come back."""
        self.engine.abort(request_id)

    def close(self) -> None:
        """Abort what runs and let go of model and cache; a second call does nothing."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TextStream(Iterator[str]):
    """An iterator over the text pieces of one request; `output` holds the whole so far.

    A stream that is dropped without `close()` is aborted when the engine's next step begins.
    """

    def __init__(self, engine: LLMEngine, request_id: str) -> None:
        self._engine = engine
        self._seen = 0
        self.output: RequestOutput = engine.output(request_id)

    def __next__(self) -> str:
        while self._seen == len(self.output.text):
            if self.output.finished:
                raise StopIteration
            self._engine.step()
        piece = self.output.text[self._seen :]
        self._seen += len(piece)
        return piece

    def close(self) -> None:
        """Abort the request if it still runs."""
        if not self.output.finished:
            self._engine.abort(self.output.request_id)

    def __del__(self) -> None:
        if not self.output.finished:
            self._engine.abort_soon(self.output.request_id)


def _as_list(prompts: Any) -> list[Prompt]:
    """One prompt, or many, as a list of prompts; what is neither is refused when it is checked."""
    if isinstance(prompts, str | bytes | Mapping) or not isinstance(prompts, Iterable):
        one: Any = prompts
        return [one]
    many: list[Any] = list(prompts)
    return [many] if any(_is_number(item) for item in many) else many


def _is_number(item: object) -> bool:
    """Whether an item is a number of any kind, an array's or a tensor's too."""
    return isinstance(item, numbers.Number) or getattr(item, "ndim", None) == 0


def _match(
    params: SamplingParams | SequenceOf[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    """One SamplingParams a prompt. Raises RequestError when the numbers differ."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, list | tuple):
        raise RequestError(
            f"sampling_params={params!r:.80} is a {type(params).__name__}: give one "
            "SamplingParams for all prompts, or a list with one each"
        )
    if len(params) != count:
        raise RequestError(
            f"{len(params)} sampling_params for {count} prompts: give one for all, or one each"
        )
    return list(params)
