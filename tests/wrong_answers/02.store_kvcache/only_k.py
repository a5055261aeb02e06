# check: one token
# words: v_cache|slot 9
# why: V forgotten
# passes ordinary: no
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = slot_mapping >= 0
    k_cache.flatten(0, 1)[slot_mapping[keep].long()] = k[keep]
