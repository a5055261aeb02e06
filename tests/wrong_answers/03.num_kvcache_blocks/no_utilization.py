# check: an 8 GiB card
# words: 172|utilization is missing
# why: the whole card is filled
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = total - used - (peak - current) - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
