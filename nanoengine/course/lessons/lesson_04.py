"""Lesson 04, CUDA graphs: buckets, padding, capture and replay of a decode step."""

from nanoengine.course.lessons import buckets_04, capture_04, captured_04, replay_04, stage_04
from nanoengine.course.lessons.questions_04 import QUESTIONS
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "CUDA graphs"
_HOME = "nanoengine.engine.cuda_graph"
_REPLAY = "replay of real CUDA graphs"
_SCENARIOS = ("buckets", "reused blocks")

EXERCISES = (
    Exercise(
        id="04.graph_buckets",
        target=f"{_HOME}:graph_buckets",
        title="Which batch sizes are captured",
        level="small",
        minutes=10,
        points=2,
        hints=(
            "Every batch up to the largest must find a graph that holds it. So the largest batch "
            "is a bucket itself, whether or not a step of 16 hits it.",
            "largest = min(max_num_seqs, limit). Then three parts, and none may repeat another: "
            "those of 1, 2, 4, 8 that are smaller than both `step` and `largest`; the multiples "
            "of step below largest; largest.",
            "small = [size for size in (1, 2, 4, 8) if size < min(largest, step)]; return "
            "[*small, *range(step, largest, step), largest].",
        ),
        where="section 3, Buckets",
        cases=buckets_04.bucket_cases,
        compare=buckets_04.compare_buckets,
        draw=buckets_04.draw_buckets,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="04.pick_bucket",
        target=f"{_HOME}:pick_bucket",
        title="A graph for a batch",
        level="small",
        minutes=5,
        points=1,
        hints=(
            "Go through the buckets from the smallest: the first that holds the batch is the one "
            "with the fewest padded rows.",
            "next(...) over a generator with a condition; its second argument is what comes out "
            "when there is none. Without it, next raises StopIteration.",
            "return next((bucket for bucket in buckets if bucket >= batch_size), None).",
        ),
        where="section 3, Buckets",
        cases=buckets_04.pick_cases,
        compare=buckets_04.compare_pick,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="04.stage_inputs",
        target=f"{_HOME}:stage_inputs",
        title="Copying a batch into the static buffers",
        level="core",
        minutes=25,
        points=5,
        hints=(
            "Two kinds of rows: [0, b) get this batch's numbers, [b, bucket) must be harmless, "
            "whatever an earlier step left there. Harmless means: writes nothing, reads nothing.",
            "Five copies with `[:b] =` on the left; for the tables also `[:, :w]`, since the "
            "batch's tables may be narrower than the buffer. Then two fills of rows [b:bucket]: "
            "slots and lengths. Nothing is assigned to `buffers.x` itself.",
            "b = len(input_ids); buffers.input_ids[:b] = input_ids; the same for positions, "
            "context.slot_mapping, context.context_lens; tables = context.block_tables; "
            "buffers.block_tables[:b, : tables.shape[1]] = tables; "
            "buffers.slot_mapping[b:bucket] = -1; buffers.context_lens[b:bucket] = 0.",
        ),
        where="section 4, Padding",
        cases=stage_04.stage_cases,
        arguments=stage_04.stage_arguments,
        observe=stage_04.observe_stage,
        compare=stage_04.compare_stage,
        draw=stage_04.draw_stage,
        scenarios=_SCENARIOS,
        gpu=replay_04.probe_stage,
        gpu_check=_REPLAY,
    ),
    Exercise(
        id="04.capture_all",
        target=f"{_HOME}:capture_all",
        title="Capturing every bucket",
        names=("captured_context",),
        level="core",
        minutes=35,
        points=6,
        hints=(
            "A graph records what a function does. So write that function, the body, for one "
            "bucket: everything it reads and writes is a slice of a buffer. Then three things for "
            "each bucket: run the body, make a graph, let it capture the body.",
            "The body: with captured_context(buffers.context(bucket)): call the model on the first "
            "`bucket` rows; then copy the result into hidden_states[:bucket]. Around it a loop "
            "from the largest bucket down, with `pool = None` before it; after the first capture "
            "pool is that graph's pool(). The double calls the body again much later: "
            "`def body(bucket=bucket)` keeps the number.",
            "graphs, pool = {}, None; for bucket in sorted(buckets, reverse=True): "
            "def body(bucket=bucket): ...; body(); graph = new_graph(bucket); "
            "graph.capture(body, pool); pool = graph.pool() if pool is None else pool; "
            "graphs[bucket] = graph. Return graphs.",
        ),
        where="section 5, Capture",
        cases=capture_04.capture_cases,
        arguments=capture_04.capture_arguments,
        observe=capture_04.observe_capture,
        compare=captured_04.compare_capture,
        scenarios=_SCENARIOS,
        captured=True,
        gpu=replay_04.probe_capture,
        gpu_check=_REPLAY,
    ),
)
