# check: exactly one block
# words: expected 1|raised NotEnoughMemory
# why: <= for <
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - (peak - current) - reserve
    if budget <= block_bytes:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
