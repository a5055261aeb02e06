from nanoengine.errors import ConfigError


def shard_slice(size, rank, ranks, what="size"):
    part, rest = divmod(size, ranks)
    if rest:
        raise ConfigError(f"tensor_parallel_size={ranks} does not divide {what}={size}")
    return slice(part * rank, part * rank + part, 1)
