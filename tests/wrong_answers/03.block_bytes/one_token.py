# check: Qwen3-0.6B
# words: 256 times too small|the tokens of a block
# why: the bytes of one token
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * (num_kv_heads // tp) * head_dim * itemsize
