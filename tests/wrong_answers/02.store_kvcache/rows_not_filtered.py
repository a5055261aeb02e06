# check: a padded row
# words: shape mismatch
# why: the slots are filtered, k and v are not
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    slots = slot_mapping[slot_mapping >= 0].long()
    k_cache.flatten(0, 1)[slots] = k
    v_cache.flatten(0, 1)[slots] = v
