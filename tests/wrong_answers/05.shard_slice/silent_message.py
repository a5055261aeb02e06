# check: cannot be divided
# words: does not tell num_attention_heads
# why: the message does not name the axis
# passes ordinary: yes
from nanoengine.errors import ConfigError


def shard_slice(size, rank, ranks, what="size"):
    if size % ranks:
        raise ConfigError(f"{size} cannot be divided by {ranks}")
    part = size // ranks
    return slice(rank * part, (rank + 1) * part)
