# check: Qwen3-0.6B
# words: 8 times too large|bits instead of bytes
# why: bits for bytes
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * (num_kv_heads // tp) * head_dim * itemsize * 8
