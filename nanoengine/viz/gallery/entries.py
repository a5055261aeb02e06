"""The list of figures: name, what draws it, what gathers its data, and where the data is from."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nanoengine.viz.style import Picture

RUN = "an engine run on the classroom model"


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure.

    draw, gather: "module:function" of nanoengine; `gather()` returns the arguments of `draw`.
    lesson: where it belongs. source: what its data is, in words.
    """

    draw: str
    gather: str
    lesson: str
    source: str

    def data(self) -> dict[str, Any]:
        """The arguments of the drawing function, gathered anew."""
        found: dict[str, Any] = _function(self.gather)()
        return found

    def picture(self) -> Picture:
        """The figure, drawn from fresh data; its `alt` states what it shows."""
        picture: Picture = _function(self.draw)(**self.data())
        return picture


def _function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(f"nanoengine.{module}"), name)
    return function


FIGURES: dict[str, Entry] = {
    "five_steps": Entry("viz.runner:five_steps", "viz.gallery.runs:five_steps", "06", RUN),
    "call_chain": Entry(
        "viz.runner:call_chain",
        "viz.gallery.recorded:step_calls",
        "06",
        "figures/data/step_calls_cpu.json",
    ),
    "slot_mapping": Entry("viz.address:address_map", "viz.gallery.runs:slot_mapping", "01", RUN),
    "packed_prefill": Entry("viz.batch:packed_batch", "viz.gallery.runs:packed_prefill", "01", RUN),
    "kv_memory": Entry("viz.kv_pool:kv_pool", "viz.gallery.runs:kv_memory", "00", RUN),
    "kv_tensor": Entry("viz.memory:cache_binding", "viz.gallery.runs:kv_tensor", "03", RUN),
    "kv_carving": Entry(
        "viz.memory:memory_bar",
        "viz.gallery.recorded:worked_card",
        "03",
        "the worked example of num_kvcache_blocks, figures/data/worked_card.json",
    ),
    "bucket_37": Entry("viz.graphs:padded_bucket", "viz.gallery.graph_runs:bucket_37", "04", RUN),
    "padding_waste": Entry(
        "viz.graphs:padding_waste",
        "viz.gallery.graph_runs:policies",
        "04",
        "the bucket lists themselves",
    ),
    "replay": Entry(
        "viz.graphs:step_timeline",
        "course.gallery_data:eager_and_replayed",
        "04",
        "figures/data/graphs_h200.json, drawn with mean times",
    ),
    "tensor_parallel": Entry(
        "viz.parallel:weight_cuts", "course.gallery_data:tensor_parallel_cuts", "05", RUN
    ),
    "two_ranks": Entry(
        "viz.parallel:step_timeline",
        "course.gallery_data:two_ranks",
        "05",
        "figures/data/rank_spans_cpu.json",
    ),
    "benchmark": Entry(
        "viz.bench:benchmark_bars",
        "viz.gallery.benchmarks:bars",
        "07",
        "figures/data/bench_qwen3-0.6b_h200_*.json",
    ),
    "step_times": Entry(
        "viz.bench:step_times",
        "viz.gallery.benchmarks:steps",
        "07",
        "figures/data/graphs_h200.json",
    ),
    "prefix_sharing": Entry("viz.prefix:prefix_tree", "viz.gallery.runs:prefix_sharing", "08", RUN),
    "overlap": Entry(
        "viz.overlap:overlap_timeline",
        "viz.gallery.paced:overlap",
        "10",
        "the engine's loop on a simulated clock, paced by "
        "figures/data/nano_vllm_decode_profile_h200.json",
    ),
}
