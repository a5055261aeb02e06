"""The C kernels, where this machine can compile them; every test here compares with plain torch."""

import pytest

from nanoengine.attention import reference
from nanoengine.kernels.native.build import load_library
from nanoengine.kernels.native.cpu import CpuKernels


@pytest.fixture
def kernels() -> CpuKernels:
    built = load_library()
    if built.library is None:
        pytest.skip(built.reason)
    return CpuKernels(built.library, reference)
