"""Lesson 04's questions: the article's self-check on CUDA graphs, answered by doing."""

import random
from typing import Any

from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion
from nanoengine.engine.cuda_graph import graph_buckets, pick_bucket

_GRAPH_LIMIT = 512  # nano-vllm captures no larger batch, and runs larger ones eagerly


# -- launches ----------------------------------------------------------------------------------


def _draw_launches(rng: random.Random) -> dict[str, Any]:
    return {"n": rng.randrange(150, 400, 10), "h": rng.randint(9, 30), "k": rng.randint(2, 6)}


def _launches_text(drawn: dict[str, Any]) -> str:
    return (
        f"A decode step has {drawn['n']} kernels. The host needs {drawn['h']} microseconds to "
        f"launch one; each then computes for {drawn['k']}. The host never waits: it launches one "
        "after the other. How many microseconds after the first launch began is the last kernel "
        "done?"
    )


def _launches_answer(drawn: dict[str, Any]) -> int:
    return int(drawn["n"] * drawn["h"] + drawn["k"])


def _why_launches(drawn: dict[str, Any], given: Any) -> str:
    n, h, k = drawn["n"], drawn["h"], drawn["k"]
    if given == n * k:
        return "that is what the GPU computes: the time of a replay. It waits for most launches."
    if given == n * (h + k):
        return "the host does not wait for a kernel before it launches the next."
    if given == n * h:
        return "nearly: then the last kernel is launched, but it still has to compute."
    return "all launches one after the other, and then the last kernel."


# -- buckets -----------------------------------------------------------------------------------


def nano_buckets(max_num_seqs: int) -> list[int]:
    """The list of the article's engine: without the end where a step of 16 does not hit it."""
    return [1, 2, 4, 8, *range(16, min(max_num_seqs, _GRAPH_LIMIT) + 1, 16)]


def without_graph(max_num_seqs: int) -> list[int]:
    """Batch sizes for which the article's run_model raises StopIteration."""
    largest = min(max_num_seqs, _GRAPH_LIMIT)
    buckets = nano_buckets(max_num_seqs)
    return [size for size in range(1, largest + 1) if pick_bucket(size, buckets) is None]


def _draw_stop(rng: random.Random) -> dict[str, Any]:
    """Values on either side of every border of the rule, in a mixed order."""
    values = [
        rng.choice((4, 5, 6, 8)),
        rng.choice((9, 10, 12, 15)),
        16 * rng.randint(2, 30),
        16 * rng.randint(2, 30) + rng.randint(1, 15),
        16 * rng.randint(2, 30) + rng.randint(1, 15),
        rng.choice((520, 600, 1000)),
    ]
    rng.shuffle(values)
    return {"values": sorted(set(values), key=values.index)}


def _stop_text(drawn: dict[str, Any]) -> str:
    return (
        f"max_num_seqs may be one of {drawn['values']}. With which of them can nano-vllm's "
        "run_model raise StopIteration? Its buckets are 1, 2, 4, 8 and the multiples of 16 up to "
        "min(max_num_seqs, 512); above 512 it runs eagerly. Give a list, ascending."
    )


def _stop_answer(drawn: dict[str, Any]) -> list[int]:
    return [value for value in sorted(drawn["values"]) if without_graph(value)]


def _why_stop(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, list):
        return "give a list of numbers, for example [24, 100]."
    right = _stop_answer(drawn)
    for value in drawn["values"]:
        if value in given and value not in right:
            if value > _GRAPH_LIMIT:
                return f"with {value} the buckets go to 512, and larger batches run eagerly."
            if value <= 8:
                return f"with {value} every batch fits into one of 1, 2, 4, 8."
            return f"{value} is a multiple of 16, so it is a bucket itself."
        if value in right and value not in given:
            sizes = without_graph(value)
            return (
                f"with {value}, a batch of {sizes[0]} finds no bucket: {sizes[0] - 1} is the last."
            )
    return "in ascending order, each once."


def _draw_padded(rng: random.Random) -> dict[str, Any]:
    """A batch in the last bucket, which no step hits, and one between two steps."""
    most = 16 * rng.randint(3, 20) + rng.randint(3, 14)
    return {"most": most, "batch": rng.choice((most - 1, 16 * (most // 16) - rng.randint(2, 13)))}


def _padded_text(drawn: dict[str, Any]) -> str:
    return (
        f"This engine runs with max_num_seqs={drawn['most']} (buckets as in graph_buckets). A step "
        f"has {drawn['batch']} sequences. How many rows of its graph are padding?"
    )


def _padded_answer(drawn: dict[str, Any]) -> int:
    batch: int = drawn["batch"]
    bucket = pick_bucket(batch, graph_buckets(drawn["most"]))
    assert bucket is not None
    return bucket - batch


def _why_padded(drawn: dict[str, Any], given: Any) -> str:
    bucket = pick_bucket(drawn["batch"], graph_buckets(drawn["most"]))
    if given == bucket:
        return "that is the bucket; the question asks for its padded rows."
    if given == -drawn["batch"] % 16:
        return f"the last bucket is max_num_seqs itself, {drawn['most']}, not a multiple of 16."
    return f"the bucket is the smallest that holds {drawn['batch']}: {bucket}."


QUESTIONS = (
    ValueQuestion(
        id="04.q.launches",
        draw=_draw_launches,
        text=_launches_text,
        answer=_launches_answer,
        explain=_why_launches,
        where="section 1, Launch-bound",
    ),
    ChoiceQuestion(
        id="04.q.fixed",
        text="A graph was captured for 8 rows. What may be different at its next replay?",
        options=(
            Option(
                "The numbers in the buffers that its kernels read.",
                "same kernels, same addresses, same shapes; whatever lies at the addresses counts.",
                right=True,
            ),
            Option(
                "The tensors, if they have the same shape as at capture.",
                "a new tensor lies elsewhere; the graph goes on reading the captured address.",
            ),
            Option(
                "The number of rows, if it is smaller than 8.",
                "the kernels were launched for 8 rows and always compute 8; the rest is padding.",
            ),
            Option(
                "The Context: operators look it up anew.",
                "looking it up is Python, and no Python runs in a replay.",
            ),
        ),
        where="section 2, What a graph fixes",
    ),
    ValueQuestion(
        id="04.q.stop_iteration",
        draw=_draw_stop,
        text=_stop_text,
        answer=_stop_answer,
        explain=_why_stop,
        where="section 3, Buckets",
    ),
    ValueQuestion(
        id="04.q.padded_rows",
        draw=_draw_padded,
        text=_padded_text,
        answer=_padded_answer,
        explain=_why_padded,
        where="section 3, Buckets",
    ),
    ChoiceQuestion(
        id="04.q.padding",
        text="Padded rows run through the whole model. Why do they not corrupt the KV cache?",
        options=(
            Option(
                "Their slot is -1, and whoever stores K and V skips negative slots.",
                "the row is computed, but nothing of it is written.",
                right=True,
            ),
            Option(
                "Their context length is 0, so nothing is stored.",
                "the length limits what is read; where K and V are written is told by the slot.",
            ),
            Option(
                "Their block tables are padded with -1.",
                "tables are for reading; and padded rows keep old tables, not -1.",
            ),
            Option(
                "Their results are cut off: only outputs[:b] is used.",
                "true, but K and V are written inside the model, layer by layer, before that.",
            ),
        ),
        where="section 4, Padding",
    ),
    ChoiceQuestion(
        id="04.q.stale_tables",
        text="Row 40 of bucket 48 is padding, and its block table still names blocks of an earlier "
        "step. Who reads it?",
        options=(
            Option(
                "Nobody: its context length is 0, and attention reads no further than that.",
                "so the table may hold anything, and staging need not clear it.",
                right=True,
            ),
            Option(
                "Attention, but the old blocks belong to no one.",
                "they may well be another sequence's now; it is the length 0 that saves the read.",
            ),
            Option(
                "The store kernel, to find out where K and V go.",
                "it gets slots, not tables.",
            ),
        ),
        where="section 4, Padding",
    ),
    ChoiceQuestion(
        id="04.q.order",
        text="Why is the largest graph captured first?",
        options=(
            Option(
                "Its pool is large enough for the intermediates of all others, which share it.",
                "graphs run one at a time, so one memory serves them all.",
                right=True,
            ),
            Option(
                "Large batches come first when the engine starts.",
                "capture is over before any request; the order of requests does not matter.",
            ),
            Option(
                "A small graph cannot be captured after a large one was replayed.",
                "it could; nothing is replayed during capture anyway.",
            ),
            Option(
                "The buffers are allocated by the first capture.",
                "they are allocated before, for the largest batch; every graph uses slices.",
            ),
        ),
        where="section 5, Capture",
    ),
    ChoiceQuestion(
        id="04.q.first_run",
        text="Why does each body run once, as usual, before it is captured?",
        options=(
            Option(
                "What compiles or loads on a first call with this shape must not do so while "
                "recording.",
                "compiling waits for the device and allocates: both are refused in a capture.",
                right=True,
            ),
            Option(
                "The graph needs the right results in its output buffer.",
                "every replay writes them anew; what the buffer holds before does not matter.",
            ),
            Option(
                "To fill the KV cache.",
                "all rows are padding then: nothing is written.",
            ),
            Option(
                "To measure how long the step takes.",
                "nobody looks at the time.",
            ),
        ),
        where="section 5, Capture",
    ),
    ChoiceQuestion(
        id="04.q.decode_only",
        text="Why is decode captured and prefill not?",
        options=(
            Option(
                "A decode step has one token a sequence, so only the batch size varies; a "
                "prefill's token count is different in nearly every step.",
                "a few dozen shapes cover all decode steps; no list covers all prefills.",
                right=True,
            ),
            Option(
                "CUDA cannot record attention over fresh keys.",
                "it records any kernel; only the shapes would have to be known.",
            ),
            Option(
                "Prefill does not write to the KV cache.",
                "it writes K and V of every prompt token.",
            ),
            Option(
                "A prefill has fewer kernels than a decode step.",
                "about as many; but each has far more to compute, so launching matters less.",
            ),
        ),
        where="section 6, What stays eager",
    ),
    ChoiceQuestion(
        id="04.q.eager",
        text="An engine with graphs up to 512 sequences runs. Which of its steps is no replay?",
        options=(
            Option(
                "A prefill, and a decode step of 513 sequences.",
                "both find no graph, and run eagerly; that is slower, and right.",
                right=True,
            ),
            Option(
                "A decode step of 37 sequences, since there is no bucket 37.",
                "it replays the graph of 48, with 11 padded rows.",
            ),
            Option(
                "A decode step in which a sequence has just got a new block.",
                "block tables are data in a buffer: they may change at every replay.",
            ),
            Option(
                "The first decode step after a prefill.",
                "graphs are captured before the first request; they do not wait for one.",
            ),
        ),
        where="section 6, What stays eager",
    ),
)
