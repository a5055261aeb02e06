# check: three layers
# words: view of shape [20, 2, 8]
# why: blocks and offsets joined to slots
# passes ordinary: no
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(f"{len(layers)} layers, {kv_cache.shape[1]} in the cache")
    for i, layer in enumerate(layers):
        layer.k_cache = kv_cache[0, i].flatten(0, 1)
        layer.v_cache = kv_cache[1, i].flatten(0, 1)
