# check: Qwen3-0.6B
# words: 28 times too small|the layers
# why: the bytes of one layer
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * block_size * (num_kv_heads // tp) * head_dim * itemsize
