# check: several sequences
# words: slot 0 of k_cache should hold token 3
# why: slots sorted, rows not
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = slot_mapping >= 0
    slots = slot_mapping[keep].sort().values.long()
    k_cache.flatten(0, 1)[slots] = k[keep]
    v_cache.flatten(0, 1)[slots] = v[keep]
