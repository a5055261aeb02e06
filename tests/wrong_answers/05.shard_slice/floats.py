# check: one rank
# words: must be int | //
# why: true division gives floats, and no slice takes them
# passes ordinary: no
from nanoengine.errors import ConfigError


def shard_slice(size, rank, ranks, what="size"):
    if size % ranks:
        raise ConfigError(f"{what}={size} cannot be divided by {ranks}")
    return slice(rank * size / ranks, (rank + 1) * size / ranks)
