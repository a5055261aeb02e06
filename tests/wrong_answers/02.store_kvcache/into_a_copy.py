# check: one token
# words: slot 9|a copy of the cache
# why: index_copy without the underscore
# passes ordinary: no
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = slot_mapping >= 0
    slots = slot_mapping[keep].long()
    k_cache = k_cache.flatten(0, 1).index_copy(0, slots, k[keep])
    v_cache = v_cache.flatten(0, 1).index_copy(0, slots, v[keep])
