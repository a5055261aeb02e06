# check: an 8 GiB card
# words: 172|you gave 190|comes back
# why: the activations of the next prefill have no room
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(f"{total} x {utilization} - {used} - ({peak} - {current}) - {reserve} < {block_bytes}")
    return budget // block_bytes
