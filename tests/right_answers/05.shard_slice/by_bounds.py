from nanoengine.errors import ConfigError


def shard_slice(size, rank, ranks, what="size"):
    bounds = [size * r / ranks for r in range(ranks + 1)]
    if any(b != int(b) for b in bounds):
        raise ConfigError(
            f"{what}: {size} numbers for {ranks} ranks; choose another number of ranks"
        )
    return slice(int(bounds[rank]), int(bounds[rank + 1]))
