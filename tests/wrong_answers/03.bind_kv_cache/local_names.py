# check: three layers
# words: layer 0's k_cache is still empty|attribute
# why: a local name is bound, not the attribute
# passes ordinary: no
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(f"{len(layers)} layers, {kv_cache.shape[1]} in the cache")
    for i, layer in enumerate(layers):
        k_cache, v_cache = layer.k_cache, layer.v_cache
        k_cache, v_cache = kv_cache[0, i], kv_cache[1, i]
