# check: several tokens
# words: slot 12|only this step
# why: slots taken to be neighbours
# passes ordinary: no
def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    if slot_mapping[0] < 0:
        return
    first = int(slot_mapping[0])
    k_cache.flatten(0, 1)[first : first + len(k)] = k
    v_cache.flatten(0, 1)[first : first + len(v)] = v
