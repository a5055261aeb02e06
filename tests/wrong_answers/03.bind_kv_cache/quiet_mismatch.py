# check: a cache with a layer too many
# words: expected ValueError|said nothing
# why: zip stops at the shorter one
# passes ordinary: yes
from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    layers = [m for m in model.modules() if isinstance(m, Attention)]
    for layer, k, v in zip(layers, kv_cache[0], kv_cache[1]):
        layer.k_cache, layer.v_cache = k, v
