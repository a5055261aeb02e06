# check: one token
# words: slot 0
# why: the mapping is ignored
# passes ordinary: no
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    n = len(k)
    k_cache.flatten(0, 1)[:n] = k
    v_cache.flatten(0, 1)[:n] = v
