from nanoengine.layers.attention import Attention


def bind_kv_cache(model, kv_cache):
    keys, values = kv_cache
    if sum(isinstance(m, Attention) for m in model.modules()) != len(keys):
        raise ValueError("another number of layers")
    layer_id = 0
    for module in model.modules():
        if isinstance(module, Attention):
            module.k_cache = keys[layer_id, ...]
            module.v_cache = values.select(0, layer_id)
            layer_id += 1
