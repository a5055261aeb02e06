# check: one token
# words: slot 6|only this step
# why: quotient and remainder exchanged
# passes ordinary: no
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    size = k_cache.shape[1]
    for i, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            k_cache[slot % size, slot // size] = k[i]
            v_cache[slot % size, slot // size] = v[i]
