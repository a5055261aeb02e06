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

    draw, gather: "module:function"; `gather()` returns the arguments of `draw`. lesson: where it
    belongs. source: what its data is, in words.
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
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"nanoengine.viz.{module}"), name
    )
    return function


FIGURES: dict[str, Entry] = {
    "five_steps": Entry("runner:five_steps", "gallery.runs:five_steps", "06", RUN),
    "call_chain": Entry(
        "runner:call_chain", "gallery.recorded:step_calls", "06", "figures/data/step_calls_cpu.json"
    ),
    "slot_mapping": Entry("address:address_map", "gallery.runs:slot_mapping", "01", RUN),
    "packed_prefill": Entry("batch:packed_batch", "gallery.runs:packed_prefill", "01", RUN),
    "kv_memory": Entry("kv_pool:kv_pool", "gallery.runs:kv_memory", "00", RUN),
    "kv_tensor": Entry("memory:cache_binding", "gallery.runs:kv_tensor", "03", RUN),
    "kv_carving": Entry(
        "memory:memory_bar",
        "gallery.recorded:worked_card",
        "03",
        "the worked example of num_kvcache_blocks, figures/data/worked_card.json",
    ),
    "prefix_sharing": Entry("prefix:prefix_tree", "gallery.runs:prefix_sharing", "08", RUN),
    "overlap": Entry(
        "overlap:overlap_timeline",
        "gallery.paced:overlap",
        "10",
        "the engine's loop on a simulated clock, paced by "
        "figures/data/nano_vllm_decode_profile_h200.json",
    ),
}
