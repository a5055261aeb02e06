# check: a padded row
# words: changed slot_mapping
# why: clamps the mapping of the caller
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = slot_mapping >= 0
    slots = slot_mapping.clamp_(min=0).long()
    k_cache.flatten(0, 1)[slots[keep]] = k[keep]
    v_cache.flatten(0, 1)[slots[keep]] = v[keep]
