"""Lesson 05, tensor parallelism: weights cut across ranks, and how rank 0 tells what to run."""

from nanoengine.course.lessons import (
    embeds_05,
    frames_05,
    loaders_05,
    loops_05,
    reads_05,
    slices_05,
)
from nanoengine.course.lessons.questions_05 import QUESTIONS
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "Tensor parallelism"
_LINEAR = "nanoengine.layers.linear"
_RPC = "nanoengine.distributed.rpc"
_SCENARIOS = ("two ranks",)

EXERCISES = (
    Exercise(
        id="05.shard_slice",
        target=f"{_LINEAR}:shard_slice",
        title="A rank's part of an axis",
        level="small",
        minutes=10,
        points=1,
        names=("ConfigError",),
        hints=(
            "Cut the axis into as many equal parts as there are ranks. Rank 0 gets the first.",
            "A part has size // ranks; rank r's begins behind r of them. If something is left "
            "over, refuse: the ranks' parts would not fit together.",
            'if size % ranks: raise ConfigError(f"{what}={size} cannot be divided by '
            'tensor_parallel_size={ranks}: ..."); part = size // ranks; return '
            "slice(rank * part, (rank + 1) * part).",
        ),
        where="section 2, Two ways to cut",
        cases=slices_05.slice_cases,
        observe=slices_05.observe_slice,
        compare=slices_05.compare_slice,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.load_rows",
        target=f"{_LINEAR}:load_rows",
        title="Loading a column-parallel layer",
        level="core",
        minutes=15,
        points=3,
        hints=(
            "Two positions: where the rows come from (this rank's part of the projection on disk) "
            "and where they go (behind the parts before it in the stacked target).",
            "Part p begins in target at the sum of the lengths of slices[0] to slices[p - 1]; a "
            "slice's length is stop - start. source[slices[part]] reads these rows and no others.",
            "start = sum(s.stop - s.start for s in slices[:part]); rows = slices[part]; "
            "target[start : start + rows.stop - rows.start].copy_(source[rows]).",
        ),
        where="section 3, Reading only its part",
        cases=loaders_05.rows_cases,
        observe=loaders_05.observe_rows,
        compare=loaders_05.compare_rows,
        draw=loaders_05.draw_rows,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.load_columns",
        target=f"{_LINEAR}:load_columns",
        title="Loading a row-parallel layer",
        level="small",
        minutes=10,
        points=2,
        hints=(
            "A weight has an output axis and an input axis, [out, in]; a row-parallel layer cuts "
            "the inputs. A bias has outputs alone.",
            "Index both axes: all rows, these columns. A bias (one axis) is read whole. Fill "
            "target in place.",
            "target.copy_(source[:, columns] if target.ndim == 2 else source[:]).",
        ),
        where="section 3, Reading only its part",
        cases=loaders_05.columns_cases,
        observe=loaders_05.observe_columns,
        compare=loaders_05.compare_columns,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.embed",
        target="nanoengine.layers.embed_head:embed",
        title="A part of the vocabulary",
        level="core",
        minutes=15,
        points=3,
        names=("F",),
        hints=(
            "A rank knows the rows of its own ids. For an id of another rank it must give zeros, "
            "so that the sum over the ranks is the one row that somebody knows.",
            "Three steps: which ids are mine (first <= id < last); the row in my part, id - first, "
            "and some row that exists for the others; look up, then zero the others' rows.",
            "mine = (input_ids >= first) & (input_ids < last); local = torch.where(mine, "
            "input_ids - first, 0); return F.embedding(local, weight) * mine[:, None].",
        ),
        where="section 4, The vocabulary",
        cases=embeds_05.embed_cases,
        arguments=embeds_05.embed_arguments,
        observe=embeds_05.observe_embed,
        compare=embeds_05.compare_embed,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.write_message",
        target=f"{_RPC}:write_message",
        title="Writing a message, piece by piece",
        level="core",
        minutes=20,
        points=3,
        names=("EngineError", "HEADER", "MAGIC"),
        hints=(
            "The buffer holds one piece at a time: a header of fixed size, then as much of the "
            "payload as fits. You write one piece and say where the next one starts.",
            "room = len(buffer) - HEADER.size. The piece has min(room, len(payload) - start) "
            "bytes. HEADER.pack_into(buffer, 0, six numbers); then copy payload[start : start + "
            "length] behind it. No room for one int32 (4 bytes): EngineError.",
            "HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, length); "
            "buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]; return "
            "start + length.",
        ),
        where="section 6, Writing a message",
        cases=frames_05.write_cases,
        observe=frames_05.observe_write,
        compare=frames_05.compare_write,
        draw=frames_05.draw_write,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.read_message",
        target=f"{_RPC}:read_message",
        title="Reading a message, piece by piece",
        level="core",
        minutes=20,
        points=3,
        names=("array", "EngineError", "HEADER", "MAGIC"),
        hints=(
            "The mirror image of writing. Look at the header first: is this the piece that is due? "
            "Then add its bytes to `received`. Is the message complete?",
            "Due is: MAGIC, the expected number, and a start that is len(received). The length may "
            "go neither beyond the message (total - start) nor beyond the buffer. Complete is "
            "len(received) == total; before that return None.",
            "magic, found, kind, total, start, length = HEADER.unpack_from(buffer); three ifs that "
            "raise EngineError; received += buffer[HEADER.size : HEADER.size + length]; if "
            'len(received) < total: return None; values = array("i"); '
            "values.frombytes(received); return Message(kind, values).",
        ),
        where="section 7, Reading a message",
        cases=reads_05.read_cases,
        observe=reads_05.observe_read,
        compare=reads_05.compare_read,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="05.worker_loop",
        target="nanoengine.distributed.worker:worker_loop",
        title="A worker's life",
        level="core",
        minutes=10,
        points=2,
        names=("EngineError", "EXIT"),
        hints=(
            "Wait, read, run, again. Three things end it: EXIT, a kind that nobody knows, and an "
            "exception of whatever it calls.",
            "receive() gives a Message(kind, values). EXIT comes first: return. No handler for the "
            "kind: raise EngineError. Otherwise call the handler with the values, and catch "
            "nothing.",
            "while True: kind, values = receive(); if kind == EXIT: return; if kind not in "
            "handlers: raise EngineError(...); handlers[kind](values).",
        ),
        where="section 8, A worker's life",
        cases=loops_05.loop_cases,
        observe=loops_05.observe_loop,
        compare=loops_05.compare_loop,
        scenarios=_SCENARIOS,
    ),
)
