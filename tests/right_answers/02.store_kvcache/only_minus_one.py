# remark: counts it from the end
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = slot_mapping != -1
    slots = slot_mapping[keep].long()
    k_cache.flatten(0, 1)[slots] = k[keep]
    v_cache.flatten(0, 1)[slots] = v[keep]
