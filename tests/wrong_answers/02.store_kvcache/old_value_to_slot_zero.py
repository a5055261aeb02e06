# check: a padded row and slot 0
# words: slot 0|not even what was there
# why: padded rows write slot 0 back, after its new row
# passes ordinary: yes
import torch


def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    keep = (slot_mapping >= 0)[:, None, None]
    slots = slot_mapping.clamp(min=0).long()
    for cache, rows in ((k_cache, k), (v_cache, v)):
        flat = cache.flatten(0, 1)
        flat[slots] = torch.where(keep, rows, flat[slots])
