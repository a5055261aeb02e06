def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    size = k_cache.shape[1]
    for i, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        k_cache[slot // size, slot % size] = k[i]
        v_cache[slot // size, slot % size] = v[i]
