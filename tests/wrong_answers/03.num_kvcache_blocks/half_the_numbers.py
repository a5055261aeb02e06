# check: too small
# words: does not tell `used`
# why: only the total and the block are named
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - (peak - current) - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(f"{total >> 20} MiB at {utilization}: no block of {block_bytes >> 20} MiB")
    return budget // block_bytes
