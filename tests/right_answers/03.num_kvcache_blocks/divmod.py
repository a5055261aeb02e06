from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(total, used, peak, current, block_bytes, utilization, reserve=0):
    room = int(total * utilization) - used - peak + current - reserve
    blocks, _ = divmod(room, block_bytes)
    if room < 0 or not blocks:
        raise NotEnoughMemory("total %d used %d peak %d current %d block %d util %.2f reserve %d"
                              % (total, used, peak, current, block_bytes, utilization, reserve))
    return blocks
