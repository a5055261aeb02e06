# check: too small
# words: does not tell `total`|8589934592
# why: the right error without the numbers
# passes ordinary: yes
from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(
    total, used, peak, current, block_bytes, utilization, reserve=0
):
    budget = int(total * utilization) - used - (peak - current) - reserve
    if budget < block_bytes:
        raise NotEnoughMemory("no room for the KV cache")
    return budget // block_bytes
