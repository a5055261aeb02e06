# check: three layers
# words: layer 0's v_cache should be V of layer 0|K of layer 1
# why: the layer taken for dim 0; two layers hide it
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(f"{len(layers)} layers, {kv_cache.shape[1]} in the cache")
    for i, layer in enumerate(layers):
        layer.k_cache, layer.v_cache = kv_cache[i % 2, 0], kv_cache[i % 2, 1]
