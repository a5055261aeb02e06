def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    used = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[used].long()
    size = k_cache.shape[1]
    where = (slots // size, slots % size)
    k_cache.index_put_(where, k[used])
    v_cache.index_put_(where, v[used])
    return k_cache
