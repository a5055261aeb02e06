from nanoengine.errors import NotEnoughMemory


def num_kvcache_blocks(total, used, peak, current, block_bytes, utilization, reserve=0):
    spike = peak - current
    count = (int(total * utilization) - used - spike - reserve) // block_bytes
    if count >= 1:
        return count
    terms = {"total": total, "used": used, "spike": spike, "reserve": reserve, "block": block_bytes}
    shown = ", ".join(f"{name} {size / 2**30:.3f} GiB" for name, size in terms.items())
    raise NotEnoughMemory(f"{shown}; only {utilization:.0%} of the card may be filled")
