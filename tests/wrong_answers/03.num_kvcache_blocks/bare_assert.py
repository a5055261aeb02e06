# check: one byte short
# words: NotEnoughMemory|AssertionError|read the numbers
# why: as in nano-vllm: the user of a shared card learns nothing (voxcpm PR 27, WeDLM 7)
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    num_blocks = (int(total * utilization) - used - (peak - current) - reserve) // block_bytes
    assert num_blocks > 0
    return num_blocks
