# check: padded rows only
# words: IndexError
# why: the last real row is looked up where there is none
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = (slot_mapping >= 0).nonzero().flatten()
    last = int(keep[-1])
    slots = slot_mapping[: last + 1].long()
    for i in keep.tolist():
        k_cache.flatten(0, 1)[slots[i]] = k[i]
        v_cache.flatten(0, 1)[slots[i]] = v[i]
