"""Two hosts, simulated: network namespaces where this user may make them, else loopback."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_models import random_prompts

from nanoengine import LLM, SamplingParams

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses Linux's namespaces"),
]
SCRIPT = """
    import json, sys
    import torch
    torch.set_num_threads(1)
    from nanoengine import LLM, SamplingParams
    with LLM({folder!r}, device="cpu", tensor_parallel_size=2, num_kvcache_blocks=20) as llm:
        params = SamplingParams(max_tokens=6, seed=3)
        outputs = llm.generate({prompts!r}, params, use_tqdm=False)
        {after}
    print("tokens", json.dumps([output.token_ids for output in outputs]), flush=True)
"""


def ip(*words: str) -> None:
    """One `ip` command."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[list[tuple[list[str], str, str]]]:
    """(command prefix, address, interface) of two hosts."""
    names = [f"nano{os.getpid()}{letter}" for letter in "ab"]
    with contextlib.ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            ip("link", "add", "veth0", "netns", names[0], "type", "veth",
               "peer", "name", "veth0", "netns", names[1])  # fmt: skip
            for number, name in enumerate(names, 1):
                ip("-n", name, "addr", "add", f"10.201.0.{number}/24", "dev", "veth0")
                for device in ("veth0", "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError):  # no `ip`, or not root
            yield [([], "127.0.0.1", "lo")] * 2
            return
        yield [
            (["ip", "netns", "exec", name], f"10.201.0.{number}", "veth0")
            for number, name in enumerate(names, 1)
        ]


def run_everywhere(
    hosts: list[tuple[list[str], str, str]], script: Path
) -> list[subprocess.CompletedProcess[str]]:
    """The script under two torchrun agents; the first host holds the rendezvous."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = []
    for number, (prefix, _, interface) in enumerate(hosts):
        command = [
            *prefix, sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
            "--nproc-per-node=1", f"--node-rank={number}", f"--master-addr={hosts[0][1]}",
            f"--master-port={port}", str(script),
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "GLOO_SOCKET_IFNAME": interface,
        }
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
    results = []
    for process in started:
        out, errors = process.communicate(timeout=240)
        results.append(subprocess.CompletedProcess(process.args, process.returncode, out, errors))
    return results


def write(tmp_path: Path, folder: Path, prompts: list[list[int]], after: str = "pass") -> Path:
    script = tmp_path / "script.py"
    text = textwrap.dedent(SCRIPT).format(folder=str(folder), prompts=prompts, after=after)
    script.write_text(text, encoding="utf-8")
    return script


def test_the_same_tokens_on_two_hosts(
    hosts: list[tuple[list[str], str, str]],
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    folder, prompts = checkpoint("qwen3"), random_prompts([3, 11, 7])
    with LLM(folder, device="cpu", num_kvcache_blocks=20) as llm:
        params = SamplingParams(max_tokens=6, seed=3)
        expected = [o.token_ids for o in llm.generate(prompts, params, use_tqdm=False)]
    first, second = run_everywhere(hosts, write(tmp_path, folder, prompts))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    printed = [line for line in first.stdout.splitlines() if line.startswith("tokens")]
    assert printed == [f"tokens {expected}"]
    assert "tokens" not in second.stdout  # what follows the engine runs on rank 0 alone


def test_an_exception_on_rank_0_ends_all(
    hosts: list[tuple[list[str], str, str]],
    checkpoint: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    folder, prompts = checkpoint("qwen3"), random_prompts([3])
    script = write(tmp_path, folder, prompts, after="raise ValueError('planted')")
    first, _ = run_everywhere(hosts, script)
    assert first.returncode != 0
    assert "planted" in first.stderr
