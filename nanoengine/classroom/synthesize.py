"""Let a larger model write part of the training text (sequence-level distillation).

    nanoengine fetch smollm2
    python -m nanoengine.classroom.synthesize --cache CACHE --teacher FOLDER --out TEXT.json.gz

The packages hold 4 million tokens of everyday chat and old novels: too few for a small model
to answer in whole sentences, and no simple stories at all. So SmolLM2-135M-Instruct (Apache-2.0)
writes short stories and replies, as in Kim and Rush, "Sequence-Level Knowledge Distillation"
(2016) and Eldan and Li, "TinyStories" (2023). Minutes on a GPU, a day on a CPU.
"""

import argparse
import gzip
import itertools
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .assignments import Request, reply_requests, story_requests
from .clean import why_unwanted
from .parse import Document

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

BATCH_SIZE, MIN_BATCH = 2048, 128
TEMPERATURE, MIN_P = 0.75, 0.08
_ASCII = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": " - ", "–": "-", "…": "..."})


def chatml(request: Request) -> str:
    """The teacher's prompt: system, turns, and the beginning of its answer."""
    parts = [("system", request.system)]
    parts += [(("user", "assistant")[i % 2], turn) for i, turn in enumerate(request.turns)]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in parts)
    return f"{text}<|im_start|>assistant\n{request.opening}"


def same_length_batches(
    requests: Iterable[Request], tokenizer: "PreTrainedTokenizerFast", batch_size: int
) -> Iterator[tuple[list[Request], torch.Tensor]]:
    """Batches of requests whose prompts have equally many tokens, so that nothing is padded.

    Yields (requests, int64 [batch, length]) as soon as `batch_size` of a length are together;
    in the end what is left, if it is worth a batch.
    """
    waiting: dict[int, list[tuple[Request, list[int]]]] = defaultdict(list)
    for request in requests:
        ids = tokenizer(chatml(request)).input_ids
        group = waiting[len(ids)]
        group.append((request, ids))
        if len(group) == batch_size:
            yield _batch(waiting.pop(len(ids)))
    for group in waiting.values():
        if len(group) >= MIN_BATCH:
            yield _batch(group)


def _batch(group: list[tuple[Request, list[int]]]) -> tuple[list[Request], torch.Tensor]:
    return [request for request, _ in group], torch.tensor([ids for _, ids in group])


@torch.inference_mode()
def sample(
    model: "PreTrainedModel", ids: torch.Tensor, eos: int, max_tokens: int, rng: torch.Generator
) -> torch.Tensor:
    """New tokens int64 [batch, <= max_tokens], drawn with temperature and min_p; eos fills rows.

    Stops early when 98 % of the rows are finished.
    """
    cache: Any = None
    new: list[torch.Tensor] = []
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    step = ids
    for index in range(max_tokens):
        out = model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        p = torch.softmax(out.logits[:, -1].float() / TEMPERATURE, -1)
        p = torch.where(p < MIN_P * p.amax(-1, keepdim=True), 0.0, p)
        noise = torch.empty_like(p).exponential_(generator=rng)
        token = (p / noise).argmax(-1)
        token = torch.where(finished, eos, token)
        finished |= token == eos
        new.append(token)
        step = token[:, None]
        if index % 8 == 7 and float(finished.float().mean()) > 0.98:
            break
    return torch.stack(new, 1)


def finish(request: Request, text: str) -> Document | None:
    """The document made of the teacher's text, cut after its last sentence; None if it is bad."""
    text = re.sub(r"\s*\n\s*", "\n", text.translate(_ASCII))
    ends = [m.end() for m in re.finditer(r"[.!?][\"')]?(?=\s|$)", text)]
    if request.kind == "dialogue" and not request.opening:
        ends = ends[:3]  # a reply is at most three sentences
        text = text.replace("\n", " ")
    if not ends:
        return None
    text = (request.opening + text[: ends[-1]]).strip()
    words = re.findall(r"\w+", text.lower())
    repetitive = len(words) > 40 and len(set(words)) < 0.3 * len(words)
    machine = re.search(r"language model|\bAI\b|assist you|artificial|\[|<\|", text)
    if repetitive or machine or not text.isascii() or why_unwanted(text):
        return None
    return Document(request.name, request.kind, (*request.kept_turns, text))


def write(
    requests: Iterable[Request], folder: Path, device: str, seconds: float, seed: int
) -> Iterator[Document]:
    """Documents written by the teacher in `folder`, until time or requests are used up."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = model.to(device).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    rng = torch.Generator(device).manual_seed(seed)
    eos, began = int(tokenizer.convert_tokens_to_ids("<|im_end|>")), time.perf_counter()
    for batch, ids in same_length_batches(requests, tokenizer, BATCH_SIZE):
        if time.perf_counter() - began > seconds:
            break
        new = sample(model, ids.to(device), eos, batch[0].max_tokens, rng)
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        documents = [d for d in map(finish, batch, texts) if d is not None]
        print(
            f"{len(documents)} of {len(batch)} kept, {new.numel()} tokens, "
            f"{time.perf_counter() - began:.1f} s; e.g. {documents[0].pieces if documents else ''}",
            flush=True,
        )
        yield from documents


def dump(path: Path, documents: Iterable[Document]) -> None:
    """Write documents as compressed JSON lists [name, kind, pieces]."""
    rows = [[d.name, d.kind, list(d.pieces)] for d in documents]
    path.write_bytes(gzip.compress(json.dumps(rows).encode(), 6))


def read(path: Path) -> list[Document]:
    """Documents as written by `dump`."""
    rows = json.loads(gzip.decompress(path.read_bytes()))
    return [Document(name, kind, tuple(pieces)) for name, kind, pieces in rows]


def main() -> None:
    """Command line: stories, then replies, each for at most `--seconds`."""
    from .data import load_documents, split

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the package files")
    parser.add_argument("--teacher", type=Path, required=True, help="SmolLM2's model folder")
    parser.add_argument("--out", type=Path, required=True, help="file to write, .json.gz")
    parser.add_argument("--seconds", type=float, default=80.0, help="for stories, and for replies")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    training, _ = split(load_documents(args.cache))
    documents = itertools.chain(
        write(story_requests(), args.teacher, args.device, args.seconds, args.seed),
        write(reply_requests(training), args.teacher, args.device, args.seconds, args.seed),
    )
    dump(args.out, documents)


if __name__ == "__main__":
    main()
