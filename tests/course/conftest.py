"""The grading server ends with the tests of the course."""

import os
from collections.abc import Iterator

import pytest
import torch

from nanoengine.course.grading import grading_session

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated, so before any import


@pytest.fixture(autouse=True, scope="package")
def _no_server_is_left() -> Iterator[None]:
    with grading_session():
        yield
