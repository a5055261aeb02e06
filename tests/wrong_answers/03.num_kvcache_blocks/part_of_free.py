# check: an 8 GiB card
# words: 172|part of the whole card
# why: utilization taken of what is free
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int((total - used) * utilization) - (peak - current) - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
