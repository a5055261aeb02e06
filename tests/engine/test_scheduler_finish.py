"""A sequence that ends while a chunk of its prompt is in flight gets no other one."""

from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.scheduler import Scheduler
from nanoengine.engine.sequence import Sequence
from nanoengine.sampling_params import SamplingParams


def test_no_chunk_for_a_finished_sequence() -> None:
    scheduler = Scheduler(BlockManager(16, 4), max_num_seqs=4, max_num_batched_tokens=8)
    seq = Sequence("long", list(range(1, 21)), SamplingParams(max_tokens=4), 24)
    scheduler.add(seq)
    step = scheduler.schedule()
    assert step is not None
    scheduler.launched(step)
    scheduler.finish(seq)
    assert scheduler.schedule() is None
