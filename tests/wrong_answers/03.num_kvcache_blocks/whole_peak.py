# check: an 8 GiB card
# words: 172|you gave 125|peak - current
# why: the weights are counted twice: in used and in peak
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - peak - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
