"""Real worker processes that do trivial work: start, messages, faults, end."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import worker_targets as wt

from nanoengine.distributed import group, rpc
from nanoengine.distributed.launch import launch
from nanoengine.distributed.worker import worker_setup
from nanoengine.distributed.workers import Workers
from nanoengine.errors import CollectiveError, EngineError, WorkerError

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks into /proc and /dev/shm"
)
TARGET = "worker_targets:serve"
SECONDS = 4.0  # deadline of these tests' engines
FOUND_WITHIN = 10.0  # what the engine promises


def traces() -> set[str]:
    """What workers could leave behind on this host (temporary files go where the test says)."""
    return {*os.listdir("/dev/shm"), *os.listdir(tempfile.gettempdir())}


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs' temporary files are no business of these tests."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)


def gone(pid: int) -> bool:
    """Whether a process is neither running nor a zombie."""
    return not os.path.exists(f"/proc/{pid}")


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    """`start(size, **args)`: workers of `worker_targets`; all ended, and nothing left, after."""
    before, opened = traces(), []

    def begin(size: int = 2, seconds: float = SECONDS, **args: Any) -> Workers:
        args = {"log": str(tmp_path / "log"), **args}
        workers = launch(size, TARGET, args, torch.device("cpu"), seconds)
        opened.append((weakref.ref(workers), [peer.pid for peer in workers.peers]))
        return workers

    yield begin
    for reference, pids in opened:
        if (workers := reference()) is not None:
            workers.close()
        assert all(gone(pid) for pid in pids)
    assert wait_for(lambda: traces() <= before, 3)
    assert not multiprocessing.active_children()


def lines(tmp_path: Path, rank: int) -> list[str]:
    """A worker's log."""
    return (tmp_path / f"log.{rank}").read_text(encoding="utf-8").splitlines()


def meet(workers: Workers) -> int:
    """Rank 0's part of the work called MEET."""
    with workers.supervise():
        return together(workers, wt.MEET)


def together(workers: Workers, kind: int, *values: int) -> int:
    """Send a message, and take part in the collective that it leads to."""
    workers.send(kind, values)
    return int(workers.group.all_reduce(torch.tensor([1]))[0])


def test_messages_of_all_sizes_to_slow_workers(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    room = (rpc.BUFFER_BYTES - rpc.HEADER.size) // 4
    sizes = [0, 1, room - 1, room, room + 1, 2 * room, 2 * room + 1, 1_500_000]
    workers = start(3, delay=0.02)
    assert workers.group.rank == 0
    with workers.supervise():
        for number, size in enumerate(sizes):
            workers.send(wt.SUM, [number] * size)
        for number in range(30):  # faster than they are read
            workers.send(wt.SUM, [number])
    assert meet(workers) == 1 + 2 + 3
    workers.close()
    workers.close()
    with pytest.raises(EngineError, match=r"have ended \(closed\)"):
        meet(workers)
    sent = [[number] * size for number, size in enumerate(sizes)] + [[n] for n in range(30)]
    expected = [" ".join(map(str, ["sum", len(v), sum(v), *v[:1]])) for v in sent]
    for rank in (1, 2):
        assert lines(tmp_path, rank) == [*expected, "meet 6"]


def test_two_groups_at_once_one_with_a_setup(start: Callable[..., Workers], tmp_path: Path) -> None:
    first = start(2, log=str(tmp_path / "first"))
    with worker_setup("worker_targets:remember", text="hello"):
        second = start(2)
    assert [meet(first), meet(second), meet(first)] == [3, 3, 3]
    if not (copy := os.fork()):  # a copy of this process ends: its workers are not its own
        first.close()
        os._exit(0)
    os.waitpid(copy, 0)
    assert meet(first) == 3
    first.close()
    assert meet(second) == 3
    second.close()
    assert lines(tmp_path, 1) == ["meet 3 hello"] * 2
    assert wt.written_by_setup == []


def fault(workers: Workers, kind: int, *values: int) -> WorkerError:
    """The WorkerError that a message leads to, within the time promised."""
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught, workers.supervise():
        together(workers, kind, *values)
    assert time.monotonic() - began < FOUND_WITHIN
    assert all(gone(peer.pid) for peer in workers.peers)
    with pytest.raises(EngineError, match=r"have ended .*rank"):
        meet(workers)
    return caught.value


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_worker_that_raises(start: Callable[..., Workers], rank: int) -> None:
    error = fault(start(3), wt.RAISE, rank)
    assert error.rank == rank
    assert f"ValueError: rank {rank} was told to raise" in str(error)
    assert "in on_raise" in str(error)


def test_a_worker_that_exits(start: Callable[..., Workers]) -> None:
    error = fault(start(2), wt.DIE, 1, 42)
    assert (error.rank, error.exitcode) == (1, 42)
    assert "exit code 42" in str(error)


def test_a_worker_that_hangs(start: Callable[..., Workers]) -> None:
    error = fault(start(3), wt.SLEEP, 2)
    assert error.rank == 2
    assert "hangs" in str(error)


@pytest.mark.slow
def test_a_worker_that_hangs_after_the_last_collective(start: Callable[..., Workers]) -> None:
    workers = start(2, seconds=1.0)
    with workers.supervise():
        workers.send(wt.SLEEP, [1])
    time.sleep(0.2)
    with pytest.raises(WorkerError, match="hangs") as caught, workers.supervise():
        workers.send(wt.MEET)
    assert caught.value.rank == 1


def test_the_watcher_finds_a_hang_while_rank_0_waits_elsewhere(
    start: Callable[..., Workers],
) -> None:
    workers = start(2, seconds=0.5)
    with workers.supervise():
        workers.send(wt.SLEEP, [1])
    workers.check()
    assert workers.lost.wait(FOUND_WITHIN)  # rank 0 says nothing
    with pytest.raises(WorkerError, match="hangs"):
        workers.check()


@pytest.mark.parametrize("moment", [pytest.param("idle", marks=pytest.mark.slow), "busy"])
def test_a_worker_that_is_killed(start: Callable[..., Workers], moment: str) -> None:
    workers = start(3)
    meet(workers)
    pid = workers.peers[1].pid
    if moment == "idle":
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    else:
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    error = fault(workers, wt.SLEEP, 2)
    assert (error.rank, error.exitcode) == (2, -signal.SIGKILL)
    assert "SIGKILL" in str(error)


@pytest.mark.slow
def test_a_worker_that_is_stopped(start: Callable[..., Workers]) -> None:
    workers = start(2)
    meet(workers)
    os.kill(workers.peers[0].pid, signal.SIGSTOP)
    assert "hangs" in str(fault(workers, wt.MEET))


class FakeInbox:
    """Of rank 0 on a GPU: `rank` is whom its kernels wait for."""

    def __init__(self, rank: int | None) -> None:
        self.rank, self.freed = rank, False

    def waits_for(self) -> int | None:
        return self.rank

    def free(self) -> None:
        self.freed = True

    def fits(self, *args: object) -> bool:
        return False


def gpu_waits_for(workers: Workers, rank: int | None) -> FakeInbox:
    inbox: Any = FakeInbox(rank)
    workers.met(replace(workers.group, inbox=inbox))
    return inbox


def test_a_worker_that_hangs_while_rank_0_cannot_launch(start: Callable[..., Workers]) -> None:
    """As on a GPU that takes no more kernels while one of them waits for the worker."""
    workers = start(3, seconds=1.0, delay=30.0)
    meet(workers)
    inbox = gpu_waits_for(workers, 2)

    def step() -> None:
        workers.send(wt.SUM, [1])
        assert workers.lost.wait(FOUND_WITHIN)
        raise CollectiveError("the launch came back, since the sums were told to end")

    with pytest.raises(WorkerError, match=r"rank 2 .* hangs"), workers.supervise():
        step()
    assert inbox.freed


def test_a_rank_that_compiles_at_the_start_is_no_hang(start: Callable[..., Workers]) -> None:
    workers = start(2, seconds=1.0)
    gpu_waits_for(workers, 1)
    assert not workers.lost.wait(2.5)


def test_a_long_step_is_no_hang(start: Callable[..., Workers]) -> None:
    workers = start(2, seconds=1.0, delay=2.5)
    meet(workers)
    gpu_waits_for(workers, None)  # both GPUs are busy, and nobody waits

    with workers.supervise():
        workers.send(wt.SUM, [1])
        assert not workers.lost.wait(2.5)
    meet(workers)


@pytest.mark.slow
def test_a_worker_that_fails_in_build(start: Callable[..., Workers]) -> None:
    workers = start(2, fail_in_build=True)
    assert "told to fail in build" in str(fault(workers, wt.MEET))


def test_waiting_for_an_agreement_ends_when_a_worker_fails(start: Callable[..., Workers]) -> None:
    workers = start(2, fail_in_build=True)
    with pytest.raises(WorkerError, match="told to fail"), workers.supervise():
        workers.group.agree("loaded")


def test_an_unknown_target_is_explained(start: Callable[..., Workers], tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="no_such_module"):
        launch(2, "no_such_module:f", {}, torch.device("cpu"), SECONDS)


@pytest.mark.parametrize(
    "error", [pytest.param(ValueError("mine"), marks=pytest.mark.slow), KeyboardInterrupt()]
)
def test_an_exception_on_rank_0_ends_the_workers(
    start: Callable[..., Workers], error: BaseException
) -> None:
    workers = start(2)

    def fail() -> None:
        workers.send(wt.MEET)
        raise error

    with pytest.raises(type(error)) as caught, workers.supervise():
        fail()
    assert caught.value is error
    assert all(gone(peer.pid) for peer in workers.peers)


def test_the_last_reference_ends_the_workers(start: Callable[..., Workers], tmp_path: Path) -> None:
    workers = launch(2, TARGET, {"log": str(tmp_path / "log")}, torch.device("cpu"), SECONDS)
    pids = [peer.pid for peer in workers.peers]
    meet(workers)
    del workers
    gc.collect()
    assert wait_for(lambda: all(gone(pid) for pid in pids), 5)


def test_a_collective_without_processes_is_refused() -> None:
    from nanoengine.distributed.group import TPGroup

    with pytest.raises(EngineError, match="launch"):
        TPGroup(1, 4).all_reduce(torch.ones(1))
    with pytest.raises(EngineError, match="launch"):
        TPGroup(1, 4).agree("blocks", 3)
    assert not issubclass(EngineError, CollectiveError)


SCRIPT = """
    import os, signal, sys, time
    import torch
    from nanoengine.distributed.launch import launch
    {guard}
        workers = launch(2, "worker_targets:serve", {{"log": {log!r}}}, torch.device("cpu"), 4.0)
        print("pid", *(peer.pid for peer in workers.peers), flush=True)
        {ending}
"""


def script(tmp_path: Path, ending: str, guard: str = 'if __name__ == "__main__":') -> list[str]:
    """A command that runs a script which makes workers and ends in its own way."""
    path = tmp_path / "script.py"
    text = textwrap.dedent(SCRIPT).format(guard=guard, log=str(tmp_path / "log"), ending=ending)
    path.write_text(text, encoding="utf-8")
    return [sys.executable, str(path)]


def run_script(command: list[str], **options: Any) -> subprocess.Popen[str]:
    paths = [str(Path(wt.__file__).parent), str(Path(__file__).parents[2])]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        **options,
    )


def worker_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:1] == ["pid"], process.communicate()[1]
    return [int(word) for word in words[1:]]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        pytest.param("raise ValueError('end')", 1, marks=pytest.mark.slow),
        pytest.param("os._exit(5)", 5, marks=pytest.mark.slow),
    ],
)
def test_the_end_of_the_program_ends_the_workers(tmp_path: Path, ending: str, code: int) -> None:
    before = traces()
    process = run_script(script(tmp_path, ending))
    pids = worker_pids(process)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert ("ValueError: end" in errors) == (code == 1)
    assert "leaked" not in errors
    assert wait_for(lambda: all(gone(pid) for pid in pids), 5)
    assert traces() <= before


@pytest.mark.parametrize(
    ("how", "hung"),
    [
        (signal.SIGKILL, True),
        (signal.SIGINT, False),
        pytest.param(signal.SIGKILL, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_program_ends_the_workers(
    tmp_path: Path, how: signal.Signals, hung: bool
) -> None:
    before = traces()
    ending = "workers.send(3, [1]); time.sleep(100)" if hung else "time.sleep(100)"
    # a session of its own: Ctrl-C goes to the whole process group, as from a terminal
    process = run_script(script(tmp_path, ending), start_new_session=True)
    pids = worker_pids(process)
    time.sleep(0.3)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        os.kill(process.pid, how)
    _, errors = process.communicate(timeout=120)
    assert wait_for(lambda: all(gone(pid) for pid in pids), 5)
    assert traces() <= before
    assert errors.count("KeyboardInterrupt") == (how == signal.SIGINT)


def test_without_the_main_guard_the_error_explains(tmp_path: Path) -> None:
    process = run_script(script(tmp_path, "pass", guard="if True:"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert 'if __name__ == "__main__":' in errors
    assert errors.count("Traceback") <= 2  # the error and its cause, of rank 0 alone


def test_a_program_without_a_file_needs_no_guard(tmp_path: Path) -> None:
    """As in a notebook: the main module is nothing that a worker could import again."""
    command = script(tmp_path, "workers.close(); print('closed')", guard="if True:")
    process = run_script([sys.executable, "-c", Path(command[1]).read_text(encoding="utf-8")])
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "closed" in out


@pytest.mark.slow
def test_fifty_times(start: Callable[..., Workers]) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    start(2).close()
    opened, threads = descriptors(), threading.active_count()
    for _ in range(50):
        workers = start(2)
        assert meet(workers) == 3
        workers.close()
    del workers
    gc.collect()
    assert descriptors() <= opened + 4
    assert threading.active_count() <= threads


def test_graphs_end_before_the_group_whose_collectives_they_hold(monkeypatch):
    """NCCL's abort waits for them: the other way round it would never return."""
    graphs, left = {1: object(), 2: object()}, []

    class Nccl:
        def abort(self):
            left.append(len(graphs))

    monkeypatch.setattr(group.c10d, "ProcessGroupNCCL", Nccl, raising=False)
    group.TPGroup(0, 2, Nccl(), captured=[graphs]).abort()
    assert left == [0]
