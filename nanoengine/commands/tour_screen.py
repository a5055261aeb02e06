"""What the tour prints: every number comes from a StepRecord, laid out for 80 columns."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from nanoengine.commands.terminal import WIDTH, bar, bold, dim, right, visible
from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.record import StepRecord
from nanoengine.engine.request import RequestOutput
from nanoengine.errors import EngineError
from nanoengine.layers.sampler import GREEDY_BELOW
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

_LABEL = 15  # columns of a row's name, the indent included
_CELL = 6  # columns of one token
_BLOCKS_A_ROW = 2
_MAX_ROWS = 4  # longer prompts show their beginning and their end
_TOP = 5
_BAR = 24


class Timing(NamedTuple):
    """Seconds: all prefill runs, the median decode run, the whole request."""

    prefill: float
    decode: float
    total: float


class Screen:
    """Prints the tour of one request on one engine."""

    def __init__(self, llm: LLM) -> None:
        self.runner = llm.engine.runner
        self.tokenizer = llm.engine.tokenizer

    def text(self, token: int) -> str:
        """A token's text on one line; its id where it has none (an unused row of the embedding)."""
        if self.tokenizer is None:
            return f"#{token}"
        return visible(self.tokenizer.decode([token], skip_special_tokens=False)) or f"#{token}"

    def heading(self, title: str, note: str, end: str = "") -> None:
        """A line that begins a part of the tour, with an optional remark at its right end."""
        space = WIDTH - len(title) - len(note) - len(end) - 2
        print(f"\n{bold(title)}  {note}{' ' * space}{dim(end)}".rstrip())

    def opening(self, text: str, output: RequestOutput, chat: bool) -> None:
        """The engine and the prompt."""
        runner, config = self.runner, self.runner.model_config
        dtype = str(runner.dtype).removeprefix("torch.")
        print(
            f"{bold('nanoengine tour')}  {config.architecture}: {config.num_hidden_layers} layers "
            f"of {config.hidden_size}"
        )
        print(f"  device {runner.device.type}, {dtype}, attention backend {runner.choice.name}")
        print(
            f"  KV cache: {runner.num_kvcache_blocks} blocks of {runner.block_size} slots, one a "
            f"token; slot = block x {runner.block_size} + offset"
        )
        count = len(output.prompt_token_ids)
        self.heading("PROMPT", f"{text!r}")
        template = ", the chat template's included" if chat else ""
        print(f"  {count} tokens{template}; _ is a space, | ends a KV block")

    def step(self, number: int, record: StepRecord, params: SamplingParams) -> None:
        """One run of the model, the request's `number`th, in the five steps of ModelRunner.run."""
        lists = record.inputs
        ms = f"{(record.applied - record.launch_start) * 1e3:.1f} ms"
        if isinstance(lists, PrefillInputs):
            self.heading(f"STEP {number}: PREFILL", "the prompt's tokens, all in one run", ms)
            self._prepared_prefill(record, lists)
        elif isinstance(lists, DecodeInputs):
            self.heading(f"STEP {number}: DECODE", "one token in, one token out", ms)
            self._prepared_decode(record, lists)
        else:
            raise EngineError(f"the record of step {record.step} holds no inputs: nothing to show")
        self._computed(record, len(lists.input_ids), params)

    def _batch(self, record: StepRecord, blocks: Sequence[int]) -> None:
        for seq, start, end, _ in record.batch.items:
            tokens = f"token {start}" if end == start + 1 else f"tokens {start} to {end - 1}"
            print(f"  batch: [{seq.request_id}], {tokens}; its block table: {_short(blocks)}")

    def _prepared_prefill(self, record: StepRecord, lists: PrefillInputs) -> None:
        size = self.runner.block_size
        # of a fresh prompt the slots say which blocks it owns; otherwise its table does
        owned = list(dict.fromkeys(slot // size for slot in lists.slot_mapping))
        self._batch(record, lists.block_tables[0] if lists.block_tables else owned)
        self._name(1, "prepare", "sequences become integer lists, then tensors")
        for line in self._token_rows(lists):
            print(line)
        history = lists.block_tables is not None
        keys = "keys: history included" if history else "keys: the same, there is no history"
        table = _short(lists.block_tables[0]) if lists.block_tables else "None"
        self._row("cu_seqlens_q", f"{lists.cu_seqlens_q}", "where each sequence's queries end")
        self._row("cu_seqlens_k", f"{lists.cu_seqlens_k}", keys)
        self._row("block_tables", table, "blocks to read" if history else "no old block to read")

    def _token_rows(self, lists: PrefillInputs) -> Iterator[str]:
        """The four lists under each other, one column a token, two KV blocks a row."""
        size = self.runner.block_size
        cells = (WIDTH - _LABEL) // (_CELL + 1) - 1
        width = min(size * _BLOCKS_A_ROW, cells)
        starts = list(range(0, len(lists.input_ids), width))
        hidden = starts[_MAX_ROWS - 1 : -1] if len(starts) > _MAX_ROWS else []
        for start in starts:
            if start in hidden:
                if start == hidden[0]:
                    yield f"    ... {len(hidden) * width} more tokens ..."
                continue
            part = slice(start, start + width)
            ends = [slot % size == size - 1 for slot in lists.slot_mapping[part]]
            texts = [self.text(token) for token in lists.input_ids[part]]
            yield dim(_cells("token", texts, ends))
            yield _cells("input_ids", lists.input_ids[part], ends)
            yield _cells("positions", lists.positions[part], ends)
            yield _cells("slot_mapping", lists.slot_mapping[part], ends)

    def _prepared_decode(self, record: StepRecord, lists: DecodeInputs) -> None:
        size = self.runner.block_size
        self._batch(record, lists.block_tables[0])
        self._name(1, "prepare", "the newest token alone; older K and V are in the cache")
        slot = lists.slot_mapping[0]
        self._row("input_ids", f"{lists.input_ids}", self.text(lists.input_ids[0]))
        self._row("positions", f"{lists.positions}", "")
        place = f"block {slot // size}, offset {slot % size}"
        self._row("slot_mapping", f"{lists.slot_mapping}", f"{place}: K and V go there")
        self._row("context_lens", f"{lists.context_lens}", "tokens to attend to, itself included")
        self._row("block_tables", f"[{_short(lists.block_tables[0])}]", "where they are")

    def _computed(self, record: StepRecord, num_tokens: int, params: SamplingParams) -> None:
        """Steps 2 to 5."""
        hidden = self.runner.model_config.hidden_size
        how = "eagerly" if record.bucket is None else f"by the graph for batches to {record.bucket}"
        self._name(2, "run_model", f"{how}: hidden states [{num_tokens}, {hidden}]")
        if record.logits is None or not record.tokens or record.tokens[0] is None:
            self._name(3, "compute_logits", "not needed: the prompt goes on in the next step")
        else:
            only = "of the last position alone: " if num_tokens > 1 else ""
            self._name(3, "compute_logits", f"{only}[1, {record.logits.shape[1]}]")
            greedy = params.temperature < GREEDY_BELOW
            rule = "the most likely" if greedy else f"at random, temperature {params.temperature}"
            self._name(4, "sample", f"{rule}; * is the token taken")
            for line in self._top(record.logits[0], record.tokens[0], params):
                print(line)
        self._name(5, "reset the context", "no later code can read this step's slots")

    def _top(self, logits: torch.Tensor, token: int, params: SamplingParams) -> Iterator[str]:
        """The likeliest tokens and the one that was taken, with their probabilities."""
        greedy = params.temperature < GREEDY_BELOW
        probs = (logits.float() / (1.0 if greedy else params.temperature)).softmax(-1)
        shown = probs.topk(min(_TOP, len(probs))).indices.tolist()
        rank = int((probs > probs[token]).sum()) + 1
        for place, candidate in enumerate(shown, start=1):
            yield self._candidate(place, candidate, float(probs[candidate]), candidate == token)
        if token not in shown:
            yield self._candidate(rank, token, float(probs[token]), True)

    def _candidate(self, rank: int, token: int, probability: float, taken: bool) -> str:
        line = (
            f"    {'*' if taken else ' '} {rank:>3}. {right(self.text(token), 14)} "
            f"{probability:6.3f}  {bar(probability, _BAR)}"
        )
        return bold(line) if taken else line

    def _name(self, number: int, name: str, note: str) -> None:
        print(f"  {number} {bold(f'{name:<17}')} {note}")

    def _row(self, name: str, value: str, note: str) -> None:
        print(f"    {name:<{_LABEL - 3}} {value:<24} {dim(note)}".rstrip())

    def summary(self, output: RequestOutput, timing: Timing) -> None:
        """How long it took, and why it ended."""
        print(f"\n  [{output.finish_reason}, {len(output.token_ids)} tokens]")
        prompt = len(output.prompt_token_ids)
        self.heading("TIME", f"{timing.total:.2f} s, this printing included")
        print(
            f"  prefill {timing.prefill * 1e3:.1f} ms for {prompt} tokens, then "
            f"{timing.decode * 1e3:.1f} ms a token (median)"
        )

    def closing(self, again: RequestOutput) -> None:
        """The same prompt once more, and where to go next."""
        print(
            f"  asked again, {again.num_reused_tokens} of {len(again.prompt_token_ids)} prompt "
            "tokens came from the prefix cache (whole blocks)"
        )
        self.heading("NEXT", "")
        print("  jupyter lab lessons/   the notebooks: build every one of these parts yourself")
        print("  pytest lessons/        grade what you built")
        print("  nanoengine chat        talk with the model; `nanoengine --help` lists the rest")


def _cells(name: str, values: Sequence[object], ends: Sequence[bool]) -> str:
    """One row of a table; "|" after a token that ends a KV block."""
    cells = (
        f" {right(str(value), _CELL)}{' |' if end else ''}"
        for value, end in zip(values, ends, strict=True)
    )
    return f"    {name:<{_LABEL - 4}}{''.join(cells)}".rstrip()


def _short(values: Sequence[int]) -> str:
    """A list, its middle left out when it is long."""
    if len(values) <= 8:
        return str(list(values))
    first, last = (", ".join(map(str, part)) for part in (values[:4], values[-2:]))
    return f"[{first}, ..., {last}]"
