"""What the figures of CUDA graphs show: a decode step in a bucket, and policies of buckets."""

from typing import Any

from nanoengine.engine.cuda_graph import graph_buckets
from nanoengine.engine.record import StepRecord
from nanoengine.viz.gallery.runs import engine, greedy

BATCH = 37
ROWS = 64  # of the engine that runs the batch
LARGEST = 512
_COARSE = 64


def bucket_37() -> dict[str, Any]:
    """What `padded_bucket` draws: 37 sequences in a decode step, in the strict CPU double."""
    records: list[StepRecord] = []
    prompts = [[200 + i] * (1 + i % 9) for i in range(BATCH)]
    options = {"num_kvcache_blocks": 3 * BATCH, "max_num_seqs": ROWS, "enforce_eager": False}
    with engine(records.append, **options) as llm:
        llm.generate(prompts, greedy(2), use_tqdm=False)
        runner: Any = llm.engine.runner
        bucket = records[-1].bucket or 0
        return {
            "batch": BATCH,
            "bucket": bucket,
            "slots": runner.buffers.slot_mapping[:bucket].tolist(),
            "lengths": runner.buffers.context_lens[:bucket].tolist(),
            "buckets": runner.buckets,
        }


def policies() -> dict[str, Any]:
    """What `padding_waste` draws: this engine's buckets, and two simpler lists."""
    doubling = [1 << i for i in range(LARGEST.bit_length())]
    coarse = list(range(_COARSE, LARGEST + 1, _COARSE))
    return {
        "policies": {
            "1, 2, 4, 8, then every 16 (this engine)": graph_buckets(LARGEST),
            "powers of two": doubling,
            f"every {_COARSE}": coarse,
        },
        "largest": LARGEST,
    }
