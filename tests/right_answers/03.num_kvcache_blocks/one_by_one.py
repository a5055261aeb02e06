import math

from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(total, used, peak, current, block_bytes, utilization, reserve=0):
    taken = used + peak - current + reserve
    blocks = math.floor((total * utilization - taken) / block_bytes)
    if blocks <= 0:
        raise NotEnoughMemory(
            f"{total:,} bytes, of which {utilization} may be used; {used:,} are used, the peak was "
            f"{peak:,}, now {current:,}; {reserve:,} are reserved; a block has {block_bytes:,}"
        )
    return blocks
