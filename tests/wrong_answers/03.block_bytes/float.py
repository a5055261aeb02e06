# check: Qwen3-0.6B
# words: 29360128.0|//
# why: / gives a float; the cache's shape needs a whole number
# passes ordinary: no
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * num_kv_heads / tp * head_dim * itemsize
