# check: float32
# words: 2 times too small
# why: bfloat16 is taken for granted
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * max(1, num_kv_heads // tp) * head_dim * 2
