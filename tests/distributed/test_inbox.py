"""Whether ranks agree on inboxes, and on NCCL where one of them has none."""

import threading
import warnings
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from nanoengine.commands import doctor
from nanoengine.distributed import inbox
from nanoengine.distributed.group import TPGroup, c10d
from nanoengine.errors import EngineError


class FakeInbox:
    """Fails where it is told to; knows the handles that it got."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        if rank == self.no_memory:
            raise self.why
        self.rank = rank

    calls: ClassVar[list[tuple[str, int | None]]] = []
    no_memory: int | None = None
    no_access: int | None = None
    why: Exception = EngineError("no memory for an inbox")

    def handle(self) -> str:
        return f"handle of {self.rank}"

    def connect(self, handles: list[str]) -> None:
        self.calls.append(("open", self.rank))
        if self.rank == self.no_access:
            raise EngineError("no access to the others")
        self.handles = handles

    def disconnect(self) -> None:
        self.calls.append(("close", self.rank))

    def __del__(self) -> None:
        self.calls.append(("give back", getattr(self, "rank", None)))


def meet(monkeypatch: pytest.MonkeyPatch, size: int = 2) -> tuple[list[Any], list[str]]:
    """What `with_inbox` gives to ranks in threads, and what was warned of."""
    monkeypatch.setattr(inbox, "Inbox", FakeInbox)
    monkeypatch.setattr(FakeInbox, "calls", [])
    monkeypatch.setattr(inbox, "why_not", lambda ranks: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    store, groups = c10d.HashStore(), [None] * size

    def join(rank: int) -> None:
        groups[rank] = inbox.with_inbox(TPGroup(rank, size, None, store))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    return groups, [str(warning.message) for warning in caught]


def test_every_rank_gets_all_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, warned = meet(monkeypatch)
    assert [group.inbox.handles for group in groups] == [["handle of 0", "handle of 1"]] * 2
    assert warned == []


NO_TRITON = ModuleNotFoundError("no module named 'triton'")


@pytest.mark.parametrize("why", [EngineError("no memory"), NO_TRITON, RuntimeError("no pages")])
def test_one_rank_without_is_all_without(monkeypatch: pytest.MonkeyPatch, why: Exception) -> None:
    monkeypatch.setattr(FakeInbox, "no_memory", 1)
    monkeypatch.setattr(FakeInbox, "why", why)
    groups, warned = meet(monkeypatch)
    assert [group.inbox for group in groups] == [None, None]
    assert warned == [f"rank 1: NCCL does all sums over the ranks, for {why}"]


def test_all_close_before_any_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeInbox, "no_access", 1)
    groups, warned = meet(monkeypatch)
    assert [group.inbox for group in groups] == [None, None]
    assert warned == ["rank 1: NCCL does all sums over the ranks, for no access to the others"]
    names = [name for name, _ in FakeInbox.calls]
    assert names[2:5] == ["close", "close", "give back"]


def test_nothing_is_said_of_ranks_that_no_inbox_is_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = TPGroup(0, 3)
        assert inbox.with_inbox(group) is group


def test_what_one_kernel_sums() -> None:
    box = object.__new__(inbox.Inbox)
    box._kernels = SimpleNamespace(ROW_BYTES=32 << 10)
    box.limit, box.rows = 4 << 20, 512
    half = torch.bfloat16
    assert box.fits((256, 8192), half)
    assert not box.fits((257, 8192), half)  # bytes
    assert not box.fits((513, 64), half)  # rows
    assert not box.fits((1, 16385), half)  # a row's place
    assert box.fits((3, 1001), torch.float32)
    assert not box.fits((64,), half)
    assert not box.fits((2, 3, 64), half)
    assert not box.fits((2, 64), torch.int64)  # they would be added as floats


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inbox.why_not(3) == "3 ranks: it is made for 2, 4, 8"
    links = {(0, 1): 1, (1, 0): 1}

    def attribute(name: str, found: Any, which: int, one: int, other: int) -> None:
        assert (name, which) == ("cuDeviceGetP2PAttribute", 3)
        found._obj.value = links.get((one, other), 0)

    monkeypatch.setattr(inbox, "_cuda", attribute)
    assert inbox.why_not(2) is None
    assert inbox.why_not(4) == "GPU 0 and GPU 2 have no NVLink between them"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_no_driver_is_a_reason() -> None:
    reason = inbox.why_not(2)
    assert reason is not None
    assert "CUDA driver" in reason


def test_doctor_says_how_gpus_would_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._sums(1) is None
    monkeypatch.setattr(doctor, "why_not", lambda ranks: None)
    assert doctor._sums(2) == doctor._sums(3)
    assert doctor._sums(3) == "small sums of 2 ranks take one kernel, larger ones NCCL"
    monkeypatch.setattr(doctor, "why_not", lambda ranks: "GPU 0 and GPU 1 have no NVLink")
    assert doctor._sums(4) == "NCCL does all sums, for GPU 0 and GPU 1 have no NVLink"
