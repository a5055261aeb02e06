# check: two ranks
# words: each of the 2 ranks keeps only its share
# why: tp is not looked at
# passes ordinary: yes
def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    return 2 * num_layers * block_size * num_kv_heads * head_dim * itemsize
