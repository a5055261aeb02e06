"""Whether ranks agree on inboxes, and on NCCL where one of them has none."""

import threading
import warnings
from typing import Any

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
            raise EngineError("no memory for an inbox")
        self.rank = rank

    no_memory: int | None = None
    no_access: int | None = None

    def handle(self) -> str:
        return f"handle of {self.rank}"

    def connect(self, handles: list[str]) -> None:
        if self.rank == self.no_access:
            raise EngineError("no access to the others")
        self.handles = handles


def meet(monkeypatch: pytest.MonkeyPatch, size: int = 2) -> tuple[list[Any], list[str]]:
    """What `with_inbox` gives to ranks in threads, and what was warned of."""
    monkeypatch.setattr(inbox, "Inbox", FakeInbox)
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


@pytest.mark.parametrize("what", ["no_memory", "no_access"])
def test_one_rank_without_is_all_without(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(FakeInbox, what, 1)
    groups, warned = meet(monkeypatch)
    assert [group.inbox for group in groups] == [None, None]
    assert len(warned) == 1
    assert warned[0].startswith("NCCL sums over the ranks, not one kernel: no ")


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
    assert doctor._sums(3) == "small sums of 2 ranks take one kernel, larger ones NCCL"
    monkeypatch.setattr(doctor, "why_not", lambda ranks: "GPU 0 and GPU 1 have no NVLink")
    assert doctor._sums(4) == "NCCL does all sums, for GPU 0 and GPU 1 have no NVLink"
