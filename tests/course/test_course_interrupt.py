"""A cell that is interrupted in a real kernel: no process, socket or shared memory is left."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm"),
]
ROOT = Path(__file__).parent.parent.parent
SECONDS = 120.0
SETUP = """
%load_ext nanoengine.course
import multiprocessing, pathlib
from nanoengine import LLM, SamplingParams
def start(**options):
    return LLM(device="cpu", tensor_parallel_size=2, num_kvcache_blocks=64, **options)
"""
GENERATE = """
llm = start(on_step=lambda record: pathlib.Path({marker!r}).touch())
llm.generate([[5] * 9] * 4, SamplingParams(max_tokens=900, ignore_eos=True), use_tqdm=False)
"""
BUILD = """
from nanoengine.distributed.worker import worker_setup
def build():
    with worker_setup("nanoengine.course.swapping:install", exercise="05.worker_loop",
                      where={{"source": {hang!r}, "name": "worker_loop"}}, calls=""):
        return start()
llm = build()
"""
HANG = """import pathlib, time
pathlib.Path({marker!r}).touch()
time.sleep(60)
def worker_loop(*args): pass
"""
GRADE = """%%exercise 05.worker_loop
import multiprocessing, pathlib, time
from nanoengine.distributed.rpc import EXIT

def worker_loop(receive, handlers):
    if multiprocessing.parent_process() is not None:
        pathlib.Path({marker!r}).touch()
        time.sleep(60)
    raise KeyError
"""
AGAIN = """
with start() as llm:
    out = llm.generate("Once", SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)
print(len(out[0].token_ids), [p.name for p in multiprocessing.active_children()])
"""


def below(pid: int) -> dict[int, str]:
    """Processes below one, with their command lines; but for multiprocessing's own tracker."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            parents[int(name)] = int(stat[1])
    found: dict[int, str] = {}
    for child in parents:
        at: int | None = child
        while at is not None and at != pid:
            at = parents.get(at)
        if at == pid and child != pid:
            with suppress(OSError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if "resource_tracker" not in words:
                    found[child] = words
    return found


class Kernel:
    """A running kernel: run a cell, interrupt one."""

    def __init__(self, work: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        env = {**os.environ, "PYTHONPATH": path, "NANOENGINE_WORK": str(work)}
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=env)
        self.pid: int = self.manager.provisioner.pid

    def run(self, code: str, until: Path | None = None) -> tuple[str, str]:
        """(what it printed, its exception); interrupted once `until` exists."""
        request, text, error = self.client.execute(code), "", ""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if until is not None and until.exists():
                self.manager.interrupt_kernel()
                until = None
            try:
                message: Any = self.client.get_iopub_msg(timeout=0.1)
            except Exception:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            text += str(content.get("text", "")) + str(
                content.get("data", {}).get("text/plain", "")
            )
            if message["msg_type"] == "error":
                error = content["ename"]
            if content.get("execution_state") == "idle":
                self.client.get_shell_msg(timeout=SECONDS)
                return text, error
        raise TimeoutError(code)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    found = Kernel(tmp_path_factory.mktemp("work"))
    try:
        assert found.run(SETUP)[1] == ""
        yield found
        left = list(below(found.pid))
    finally:
        found.close()
    assert wait_for(lambda: not [pid for pid in left if os.path.exists(f"/proc/{pid}")])


def wait_for(condition: Callable[[], bool], seconds: float = 8.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("what", ["generate", "build", "grade"])
def test_an_interrupted_cell_leaves_nothing(kernel: Kernel, tmp_path: Path, what: str) -> None:
    marker, before = tmp_path / "running", set(os.listdir("/dev/shm"))
    hang = HANG.format(marker=str(marker))
    cell = {"generate": GENERATE, "build": BUILD, "grade": GRADE}[what]
    _, error = kernel.run(cell.format(marker=str(marker), hang=hang), until=marker)
    assert error == "KeyboardInterrupt"
    assert wait_for(lambda: not below(kernel.pid)), below(kernel.pid)
    assert set(os.listdir("/dev/shm")) <= before
    text, error = kernel.run(AGAIN)  # and the kernel is as good as new
    assert (text.strip(), error) == ("3 []", "")
