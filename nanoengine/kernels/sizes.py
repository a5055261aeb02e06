"""Arithmetic of launch shapes, on the host.

Triton's own `cdiv` and `next_power_of_2` are made for use inside kernels too, and take microseconds
a call; launching the 28 layers of a prefill asks 369 times.
"""


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up.

    >>> cdiv(9, 4)
    3
    """
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n, for n >= 1.

    >>> [next_power_of_2(n) for n in (1, 2, 3, 128, 129)]
    [1, 2, 4, 128, 256]
    """
    return 1 << (n - 1).bit_length()
