# check: a padded row before others
# words: slot 3 of k_cache should hold token 2
# why: break for continue
# passes ordinary: yes
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    for i, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            break
        k_cache.flatten(0, 1)[slot] = k[i]
        v_cache.flatten(0, 1)[slot] = v[i]
