# check: a padded row
# words: slot 0
# why: torch, and clamped
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    slots = slot_mapping.clamp(min=0).long()
    k_cache.flatten(0, 1)[slots] = k
    v_cache.flatten(0, 1)[slots] = v
