"""The grading server ends with the tests of the course; workers of these tests start quickly."""

import multiprocessing
import os
import sys
from collections.abc import Iterator

import pytest
import torch

from nanoengine.course.grading import grading_session
from nanoengine.distributed import launch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated, so before any import


@pytest.fixture(autouse=True, scope="package")
def _no_server_is_left() -> Iterator[None]:
    with grading_session():
        yield


@pytest.fixture(autouse=True)
def _workers_have_torch_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked from a process that has imported it once: a tenth of a second instead of three."""
    if sys.platform == "linux":
        multiprocessing.set_forkserver_preload(["nanoengine.engine.tensor_parallel"])
        monkeypatch.setattr(launch, "START_METHOD", "forkserver")
