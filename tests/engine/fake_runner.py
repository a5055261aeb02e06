"""A runner without a model, for the real engine: its cache knows what should be in each slot.

The next token is a function of all tokens before it, read back from the simulated cache. So a
slot that was never written, or holds another sequence's token, shows: as an error or as a token
that `expected_tokens` would not give.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from nanoengine.config import EngineConfig
from nanoengine.engine import engine as engine_module
from nanoengine.engine import inputs
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sequence import Batch, Sequence

EOS = 0
VOCAB = 10
START = 17  # identity of the empty prefix


def extend(prefix: int, token: int) -> int:
    """Identity of a prefix with one more token."""
    return (prefix * 1_000_003 + token + 1) % (2**61 - 1)


def next_token(prefix: int) -> int:
    """The fake model: a token that depends on the whole prefix."""
    return (prefix >> 7) % VOCAB


def expected_tokens(prompt: list[int], limit: int, ignore_eos: bool = False) -> list[int]:
    """What the engine must generate, up to `limit` tokens of prompt and output together."""
    prefix, tokens = START, []
    for token in prompt:
        prefix = extend(prefix, token)
    while len(prompt) + len(tokens) < limit:
        tokens.append(next_token(prefix))
        prefix = extend(prefix, tokens[-1])
        if tokens[-1] == EOS and not ignore_eos:
            break
    return tokens


@dataclass
class Event:
    """What the fake device saw: run number `run` was launched, or its tokens were read."""

    kind: str
    run: int
    request_ids: list[str] = field(default_factory=list)


class Handle:
    """Tokens of one run; reading them is an event."""

    def __init__(self, runner: "FakeRunner", run: int, tokens: list[int]) -> None:
        self.runner, self.run, self.tokens = runner, run, tokens

    def tolist(self) -> list[int]:
        """The tokens."""
        self.runner.events.append(Event("read", self.run))
        return self.tokens


class FakeRunner:
    """Stands in for ModelRunner."""

    def __init__(self, num_blocks: int, block_size: int, max_model_len: int, rows: int) -> None:
        self.num_kvcache_blocks, self.block_size = num_blocks, block_size
        self.max_model_len = max_model_len
        self.cache: dict[int, int] = {}  # slot -> identity of the prefix that ends there
        self.last_token: list[int | None] = [None] * rows
        self.events: list[Event] = []
        self.runs: list[Batch] = []

    def run(self, batch: Batch, record: StepRecord | None = None) -> Handle:
        """Write the batch's slots, read back every sequence's prefix, and give its next token."""
        tokens = []
        for seq, ids, slots in self._rows(batch):
            assert ids, f"{seq} is run without a token: nothing gives its next one"
            start = len(seq) - 1 if not batch.is_prefill else seq.num_cached_tokens
            prefix = self._read(seq, start)
            for token, slot in zip(ids, slots, strict=True):
                known = self.last_token[-token - 1] if token < 0 else token
                assert known is not None, "a placeholder whose row has no token yet"
                prefix = self.cache[slot] = extend(prefix, known)
            assert self._read(seq, start + len(ids)) == prefix
            tokens.append(next_token(prefix))
        for item, token in zip(batch.items, tokens, strict=True):
            self.last_token[item.seq.row] = token if item.emits else None
        self.events.append(Event("launch", len(self.runs), [s.request_id for s in batch.seqs]))
        self.runs.append(batch)
        return Handle(self, len(self.runs) - 1, tokens)

    def _rows(self, batch: Batch) -> list[tuple[Sequence, list[int], list[int]]]:
        """(sequence, its input ids, its slots), from the engine's own integer lists."""
        if not batch.is_prefill:
            lists = inputs.prepare_decode(batch.seqs, self.block_size)
            return [
                (seq, [token], [slot])
                for seq, token, slot in zip(
                    batch.seqs, lists.input_ids, lists.slot_mapping, strict=True
                )
            ]
        packed = inputs.prepare_prefill(batch.seqs, self.block_size)
        ends = packed.cu_seqlens_q
        return [
            (seq, packed.input_ids[a:b], packed.slot_mapping[a:b])
            for seq, a, b in zip(batch.seqs, ends, ends[1:], strict=False)
        ]

    def _read(self, seq: Sequence, length: int) -> int:
        """Identity of the first `length` tokens; every slot must have been written."""
        if not length:
            return START
        slots = inputs.slot_mapping(seq.block_table, 0, length, self.block_size)
        missing = [slot for slot in slots if slot not in self.cache]
        assert not missing, f"{seq} reads slots {missing}, which were never written"
        return self.cache[slots[-1]]


def fake_engine(
    folder: Path,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_model_len: int = 1000,
    **options: object,
) -> LLMEngine:
    """A real LLMEngine on a FakeRunner; `folder` is any empty folder of the test's."""
    config = EngineConfig.from_kwargs(device="cpu", **options)
    if not (folder / "config.json").exists():
        sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        fields: dict[str, object] = dict.fromkeys(sizes, 8)
        fields |= {"architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB}
        fields |= {"max_position_embeddings": 1000, "eos_token_id": EOS, "head_dim": 2}
        (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    real = engine_module.ModelRunner
    try:
        engine_module.ModelRunner = lambda config, model_config, folder: FakeRunner(  # type: ignore
            num_blocks, block_size, max_model_len, config.max_num_seqs
        )
        return LLMEngine(folder, config)
    finally:
        engine_module.ModelRunner = real  # type: ignore[misc]
