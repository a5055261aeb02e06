"""Train the classroom model: a small Qwen3 from random weights, on a GPU or a CPU.

    python -m nanoengine.classroom.train --data DATA --out MODEL                  # phase 1
    python -m nanoengine.classroom.train --data DATA2 --init MODEL --out MODEL2   # phase 2
    python -m nanoengine.classroom.train --smoke --out MODEL          # a minute on a CPU

The text is small (about 4 million tokens, read many times), so the danger is learning it by
heart. Against that stand dropout, weight decay, conversations cut anew in every epoch, and
held-out text whose loss decides every setting. The second phase goes on from the first one's
weights, with the text of `refine.py` in the shares of `mixture.py`.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn

from .data import Encoded, Renderer, Tokens, encode, epoch_stream, load, split, train_tokenizer
from .export import write_folder
from .mixture import SHARES, Mixture, same_document
from .network import build_model, load_weights

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

LOG_EVERY, HELD_OUT_POINTS = 20, 24


@dataclass(frozen=True)
class TrainConfig:
    """Shape of the model and how it is trained; the defaults are those of the shipped model.

    A step reads `batch_size` windows of `seq_len` tokens. `dropout` acts on what each
    attention and MLP block adds, and on the embeddings, in training only. An epoch is the whole
    text once; with `mixture_tokens`, so many tokens of a `Mixture`, each document by itself.
    """

    hidden_size: int = 384
    num_hidden_layers: int = 5
    intermediate_size: int = 1024
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    max_position_embeddings: int = 2048
    seq_len: int = 1024
    batch_size: int = 32
    epochs: int = 15
    learning_rate: float = 4e-3
    warmup_steps: int = 200
    weight_decay: float = 0.3
    dropout: float = 0.1
    mixture_tokens: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seq_len > self.max_position_embeddings:
            raise ValueError(
                f"seq_len {self.seq_len} exceeds max_position_embeddings "
                f"{self.max_position_embeddings}: lower the one or raise the other"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self.num_attention_heads} query heads cannot share "
                f"{self.num_key_value_heads} key/value heads evenly: use a divisor"
            )


SMOKE = TrainConfig(
    hidden_size=48, num_hidden_layers=1, intermediate_size=96, head_dim=8, seq_len=64,
    batch_size=8, epochs=1, warmup_steps=4, learning_rate=1e-2,
)  # fmt: skip
SMOKE_VOCAB_SIZE = 320
# The second phase: few steps, for what was learned shall stay.
REFINE = TrainConfig(epochs=3, learning_rate=2.5e-3, warmup_steps=60, mixture_tokens=1_000_000)


def windows(stream: Tokens, seq_len: int) -> torch.Tensor:
    """The stream as rows of seq_len + 1 tokens, int64; neighbours share one token."""
    rows = (len(stream) - 1) // seq_len
    if rows < 1:
        raise ValueError(f"{len(stream)} tokens give no window of {seq_len}: add text")
    flat = torch.from_numpy(stream.astype(np.int64))
    return flat[: rows * seq_len + 1].unfold(0, seq_len + 1, seq_len)


def batches(rows: torch.Tensor, batch_size: int, rng: np.random.Generator) -> Iterator[Any]:
    """Full batches of rows in random order (the rest is dropped), int64 [batch, seq_len + 1]."""
    order = torch.from_numpy(rng.permutation(len(rows)))
    for start in range(0, max(len(rows) - batch_size, 0) + 1, batch_size):
        yield rows[order[start : start + batch_size]]


def epochs(
    training: Encoded, renderer: Renderer, config: TrainConfig
) -> Iterator[tuple[torch.Tensor, np.random.Generator]]:
    """For each epoch its windows, int64 [rows, seq_len + 1], and the generator of their order."""
    mixture = Mixture(training, renderer, SHARES, config.seed) if config.mixture_tokens else None
    for epoch in range(config.epochs):
        rng = np.random.default_rng([config.seed, epoch])
        if mixture:
            stream = mixture.stream(config.mixture_tokens)
        else:
            stream = epoch_stream(training, renderer, rng)
        yield windows(stream, config.seq_len), rng


def loss_of(model: nn.Module, rows: torch.Tensor, end: int | None = None) -> torch.Tensor:
    """Mean next-token loss (nats) of a batch [batch, seq_len + 1]; bfloat16 on a GPU.

    With the id of the token that ends a document, attention stays inside documents.
    """
    ids = rows[:, :-1]
    mask = None if end is None else same_document(ids, end)
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=rows.is_cuda):
        logits = model(input_ids=ids, attention_mask=mask).logits
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(
    model: nn.Module, rows: torch.Tensor, batch_size: int, end: int | None = None
) -> float:
    """Mean loss (nats a token) over all held-out windows, without dropout."""
    model.eval()
    parts = torch.split(rows, batch_size)
    losses = [float(loss_of(model, part, end)) * len(part) for part in parts]
    model.train()
    return sum(losses) / len(rows)


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Linear warm-up, then half a cosine down to zero at `steps`."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(steps - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW; matrices decay, norms' gains don't."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), fused=fused)


def train(
    training: Encoded,
    held_out: Encoded,
    tokenizer: Tokenizer,
    config: TrainConfig,
    device: str,
    init: Path | None = None,
) -> tuple["Qwen3ForCausalLM", list[dict[str, float]]]:
    """The trained model (float32, on `device`) and its loss curve; `init`: where it begins.

    A point of the curve: `step`, `tokens` read so far, `seconds`, `train_loss` (mean since the
    point before) and, at some points, `held_out_loss`; losses in nats a token.
    """
    renderer = Renderer(tokenizer)
    end = renderer.end[0] if config.mixture_tokens else None
    model: Any = build_model(config, tokenizer.get_vocab_size())
    if init is not None:
        load_weights(model, init)
    model = model.to(device)
    optimizer = make_optimizer(model, config)
    whole = [
        t for dialogue, pieces in held_out.documents() for t in renderer.whole(dialogue, pieces)
    ]
    held_out_rows = windows(np.array(whole, np.uint16), config.seq_len).to(device)
    curve: list[dict[str, float]] = []
    recent: list[torch.Tensor] = []
    step, steps, began = 0, 0, time.perf_counter()
    model.train()
    for rows, rng in epochs(training, renderer, config):
        steps = steps or config.epochs * max(len(rows) // config.batch_size, 1)
        every = max(steps // HELD_OUT_POINTS, 1)
        for batch in batches(rows.to(device), config.batch_size, rng):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, config)
            loss = loss_of(model, batch, end)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            recent.append(loss.detach())
            step += 1
            if step % min(LOG_EVERY, every) == 0:
                point = {"step": step, "tokens": step * batch[:, 1:].numel()}
                point["seconds"] = round(time.perf_counter() - began, 1)
                point["train_loss"] = round(float(torch.stack(recent).mean()), 4)
                recent.clear()
                if step % every < min(LOG_EVERY, every):
                    loss_now = held_out_loss(model, held_out_rows, config.batch_size, end)
                    point["held_out_loss"] = round(loss_now, 4)
                    print(json.dumps(point), flush=True)
                curve.append(point)
    loss_now = held_out_loss(model, held_out_rows, config.batch_size, end)
    curve.append({"step": step, "held_out_loss": loss_now})
    return model.eval(), curve


def smoke_data() -> tuple[Encoded, Encoded, Tokenizer]:
    """A hundred made-up conversations, enough to see the loss fall on a CPU."""
    from .smoke import made_up_documents

    training, held_out = split(made_up_documents())
    tokenizer = train_tokenizer((p for d in training for p in d.pieces), SMOKE_VOCAB_SIZE)
    return encode(tokenizer, training), encode(tokenizer, held_out), tokenizer


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; every field of TrainConfig is an option, e.g. `--hidden-size 320`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder written by nanoengine.classroom.data")
    parser.add_argument("--init", type=Path, help="model folder to go on from (phase 2)")
    parser.add_argument("--out", type=Path, required=True, help="model folder to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="a tiny model on made-up text")
    for name, value in asdict(TrainConfig()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value))
    args = parser.parse_args(arguments)
    if args.smoke and args.init:
        parser.error("--smoke starts from random weights: leave --init out")
    if not args.smoke and args.data is None:
        parser.error("--data is needed (make it with `python -m nanoengine.classroom.data`)")
    return args


def main(arguments: list[str] | None = None) -> list[dict[str, float]]:
    """Train as the command line says, write the model folder; returns the loss curve."""
    args = parse_arguments(arguments)
    given = {n: v for n in asdict(SMOKE) if (v := getattr(args, n)) is not None}
    config = replace(SMOKE if args.smoke else REFINE if args.init else TrainConfig(), **given)
    if args.smoke:
        training, held_out, tokenizer = smoke_data()
    else:
        training, held_out = load(args.data / "corpus.npz")
        tokenizer = Tokenizer.from_file(str(args.data / "tokenizer.json"))
    model, curve = train(training, held_out, tokenizer, config, args.device, args.init)
    log: dict[str, Any] = {"config": asdict(config), "curve": curve}
    if args.init:  # the first phase's log comes first
        before = json.loads((args.init / "loss_curve.json").read_text(encoding="utf-8"))
        log = {**before, "refined": {**log, "shares": SHARES}}
    write_folder(args.out, model, tokenizer, log)
    print(json.dumps({"out": str(args.out), "held_out_loss": curve[-1]["held_out_loss"]}))
    return curve


if __name__ == "__main__":
    main()
