# remark: raised nothing
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    flat_k, flat_v = k_cache.flatten(0, 1), v_cache.flatten(0, 1)
    for i, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < len(flat_k):
            flat_k[slot], flat_v[slot] = k[i], v[i]
