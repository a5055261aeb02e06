# check: a padded row
# words: slot 7|counts it from the end
# why: cache[-1] is the last slot
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    slots = slot_mapping.long()
    k_cache.flatten(0, 1)[slots] = k
    v_cache.flatten(0, 1)[slots] = v
