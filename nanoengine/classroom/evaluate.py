"""Measure a trained model folder: held-out bits per byte, the 5-gram baseline, samples.

    python -m nanoengine.classroom.evaluate --cache CACHE --synthetic TEXT.json.gz --model FOLDER

writes `quality.json` and `MODEL_CARD.md` into the folder, so that every number in the card
comes from one run, and renews the manifest.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from .card import render_card
from .data import Renderer, encode, load_documents, split
from .export import write_json
from .folder import write_manifest
from .mixture import same_document
from .ngram import KneserNey
from .parse import Document
from .smalltalk import PROJECT_SOURCES, project_documents
from .synthesize import read
from .train import windows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
WINDOW, BATCH = 1024, 8
TEMPERATURE, MAX_TOKENS, SEED = 0.7, 60, 0


def token_stream(tokenizer: Tokenizer, documents: list[Document]) -> tuple[Ints, Ints]:
    """(token ids of all documents end to end, index of the document each belongs to)."""
    renderer = Renderer(tokenizer)
    encoded = encode(tokenizer, documents)
    streams = [renderer.whole(dialogue, pieces) for dialogue, pieces in encoded.documents()]
    owner = np.repeat(np.arange(len(streams)), [len(s) for s in streams])
    return np.array([t for s in streams for t in s], np.int64), owner


@torch.inference_mode()
def model_nats(model: Any, stream: Ints, end: int | None = None) -> Floats:
    """-ln p of each token of the stream but the first, with up to 1,024 tokens of context.

    Windows don't overlap, so at a window's start the model sees less than it could: the
    figure errs against the model. Tokens after the last full window are left out. With `end`,
    the id of the token that ends a document, the model sees nothing of the document before.
    """
    nats = []
    for rows in torch.split(windows(stream.astype(np.uint16), WINDOW), BATCH):
        rows = rows.to(model.device)
        mask = None if end is None else same_document(rows[:, :-1], end)
        logits = model(input_ids=rows[:, :-1], attention_mask=mask).logits.float()
        nats.append(F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none"))
    joined: Floats = torch.cat(nats).double().cpu().numpy()
    return joined


def per_document(nats: Floats, owner: Ints, count: int) -> Floats:
    """Sums of nats for each of `count` documents."""
    sums: Floats = np.bincount(owner, weights=nats, minlength=count).astype(np.float64)
    return sums


def compare(
    model: Any,
    tokenizer: Tokenizer,
    training: list[Document],
    held_out: list[Document],
) -> dict[str, dict[str, float]]:
    """Held-out bits per byte of the model and of the 5-gram baseline, by source and for all.

    The 5-gram model uses the same tokenizer, so it sees 5 tokens, about 19 characters: much
    stronger than one over characters. Role marks and ends of turns are paid for by both, but
    only bytes of text are counted. The row "all" leaves out the text written for the project:
    made from patterns, it is easy, and would flatter both.
    """
    stream, owner = token_stream(tokenizer, held_out)
    count = len(held_out)
    ours = model_nats(model, stream, Renderer(tokenizer).end[0])
    totals = {"model": per_document(ours, owner[1 : len(ours) + 1], count)}
    kn = KneserNey(token_stream(tokenizer, training)[0], tokenizer.get_vocab_size())
    totals["token_5gram"] = per_document(
        kn.nats(stream)[1 : len(ours) + 1], owner[1 : len(ours) + 1], count
    )
    sizes = np.array([sum(len(p.encode()) for p in d.pieces) for d in held_out], np.float64)
    sources = np.array([d.name.split("/")[0] for d in held_out])
    table = {}
    for source in ("all", *sorted(set(sources))):
        chosen = ~np.isin(sources, PROJECT_SOURCES) if source == "all" else sources == source
        size = float(sizes[chosen].sum())
        row = {n: round(float(t[chosen].sum()) / math.log(2) / size, 4) for n, t in totals.items()}
        row["below_token_5gram_percent"] = round(100 * (1 - row["model"] / row["token_5gram"]), 1)
        table[source] = {"bytes": size, "documents": int(chosen.sum()), **row}
    return table


def load_prompts() -> dict[str, list[str]]:
    """The prompts fixed before training ended: `chat` (user turns) and `text` (openings)."""
    text = (Path(__file__).parent / "prompts.json").read_text(encoding="utf-8")
    prompts: dict[str, list[str]] = json.loads(text)
    return prompts


@torch.inference_mode()
def samples(folder: Path, model: Any) -> list[dict[str, str]]:
    """One answer to each fixed prompt at temperature 0.7, seed 0 each, none chosen."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    answers = []
    for kind, prompts in load_prompts().items():
        for prompt in prompts:
            text = prompt
            if kind == "chat":
                turns = [{"role": "user", "content": prompt}]
                text = tokenizer.apply_chat_template(
                    turns, add_generation_prompt=True, tokenize=False
                )
            ids = tokenizer(text, return_tensors="pt").input_ids
            torch.manual_seed(SEED)
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, top_p=1.0,
                temperature=TEMPERATURE, max_new_tokens=MAX_TOKENS,
            )  # fmt: skip
            answer = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
            answers.append({"kind": kind, "prompt": prompt, "answer": answer})
    return answers


def count_text(training: list[Document], tokenizer: Tokenizer) -> dict[str, Any]:
    """Documents, bytes and tokens of the training text, by source."""
    counts: dict[str, dict[str, int]] = {}
    for document in training:
        row = counts.setdefault(
            document.name.split("/")[0], {"documents": 0, "bytes": 0, "tokens": 0}
        )
        row["documents"] += 1
        row["bytes"] += sum(len(piece.encode()) for piece in document.pieces)
    for source, row in counts.items():
        mine = [p for d in training if d.name.startswith(f"{source}/") for p in d.pieces]
        row["tokens"] = sum(len(e.ids) for e in tokenizer.encode_batch(mine))
    return counts


def measure(folder: Path, documents: list[Document], device: str) -> None:
    """Measure the model in `folder`; write quality.json, MODEL_CARD.md and the manifest there."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    training, held_out = split(documents)
    answers = samples(folder, model)  # on the CPU, where a seed means the same everywhere
    model.to(device)
    quality = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_text": count_text(training, tokenizer),
        "held_out_bits_per_byte": compare(model, tokenizer, training, held_out),
        "sampling": {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "seed": SEED},
        "samples": answers,
    }
    write_json(folder / "quality.json", quality)
    (folder / "MODEL_CARD.md").write_text(render_card(folder), encoding="utf-8")
    write_manifest(folder)


def main() -> None:
    """Command line: gather the text again, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of the package files")
    parser.add_argument("--synthetic", type=Path, nargs="*", default=[], help="teacher's text")
    parser.add_argument("--model", type=Path, required=True, help="model folder to measure")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    documents = load_documents(args.cache)
    for path in args.synthetic:
        documents += read(path)
    documents += project_documents()
    measure(args.model, documents, args.device)


if __name__ == "__main__":
    main()
