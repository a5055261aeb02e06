"""What a user sees of a request while it runs: its output, and how its text grows."""

from dataclasses import dataclass, field

from nanoengine.detokenizer import IncrementalDetokenizer, StopStrings
from nanoengine.engine.sequence import Sequence
from nanoengine.tokenizer import Tokenizer


@dataclass(slots=True)
class RequestOutput:
    """The result of one request; the engine updates this one object as the request goes on.

    finish_reason: None while it runs, then "stop" (end-of-text token, stop token or stop string),
    "length" (max_tokens, max_model_len or the KV pool) or "abort".
    token_ids: the output tokens, a stop token included; text: without special tokens and without
    the stop string. num_reused_tokens: prompt tokens that came from the prefix cache.
    """

    request_id: str
    prompt_token_ids: list[int]
    prompt: str | None = None
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    num_reused_tokens: int = 0

    @property
    def finished(self) -> bool:
        """Whether the request has ended, for whatever reason."""
        return self.finish_reason is not None


class Request:
    """A sequence, its output, and the state between tokens and text."""

    def __init__(self, seq: Sequence, output: RequestOutput, tokenizer: Tokenizer | None) -> None:
        self.seq, self.output = seq, output
        self._detokenizer = IncrementalDetokenizer(tokenizer) if tokenizer else None
        self._stops = StopStrings(seq.params.stop_list)

    def append(self, token: int) -> None:
        """Take one new token; sets finish_reason when it is the last one."""
        output, seq = self.output, self.seq
        if not output.token_ids:
            output.num_reused_tokens = seq.num_reused_tokens
        output.token_ids.append(token)
        count = len(output.token_ids)
        stopped = self._detokenizer is not None and self._grow_text(self._detokenizer.push(token))
        if stopped or (token in seq.stop_token_ids and count >= seq.params.min_tokens):
            output.finish_reason = "stop"
        elif seq.num_prompt_tokens + count >= seq.max_total_tokens:
            output.finish_reason = "length"
        if output.finish_reason is not None and not stopped:
            self._flush_text()

    def abort(self) -> None:
        """End without a further token."""
        if not self.output.finished:
            self.output.finish_reason = "abort"
            self._flush_text()

    def _grow_text(self, delta: str) -> bool:
        """Add a token's text; True when it completes a stop string."""
        if len(self.output.token_ids) < self.seq.params.min_tokens:
            self.output.text += delta
            return False
        text, stop = self._stops.push(delta)
        self.output.text += text
        return stop is not None

    def _flush_text(self) -> None:
        """Release what was held back: half characters, and text that might have become a stop."""
        if self._detokenizer is None:
            return
        text, stop = self._stops.push(self._detokenizer.flush())
        self.output.text += text
        if stop is None:
            self.output.text += self._stops.flush()
