# check: one byte short
# words: not one block fits|you gave 0
# why: 0 blocks pass the check
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - (peak - current) - reserve
    if budget < 0:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
