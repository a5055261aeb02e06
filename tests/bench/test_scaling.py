"""The scaling table: what it reports on two processes, and that random weights reach them all."""

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest

from nanoengine import LLM, SamplingParams
from nanoengine.bench import BenchError, scaling
from nanoengine.bench.shapes import write_config
from nanoengine.distributed import launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts workers by a fork server")
SMALL = ["--shape=tiny", "--device=cpu", "--context=8", "--steps=2", "--repeats=1", "--batch=2"]


@pytest.fixture(autouse=True)
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    multiprocessing.set_forkserver_preload(["nanoengine.engine.tensor_parallel"])
    monkeypatch.setattr(launch, "START_METHOD", "forkserver")


def test_every_rank_draws_the_same_model(tmp_path: Path) -> None:
    """The tokens of two and four ranks are those of one."""
    folder = write_config("tiny", tmp_path)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    outputs = []
    for ranks in (1, 2, 4):
        options: dict[str, Any] = {"load_format": "dummy", "dummy_seed": 4}
        with LLM(
            folder, device="cpu", num_kvcache_blocks=8, tensor_parallel_size=ranks, **options
        ) as llm:
            outputs.append(llm.generate([[5, 9, 2], [7]], params, use_tqdm=False))
    tokens = [[out.token_ids for out in found] for found in outputs]
    assert tokens[1:] == tokens[:1] * 2


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaling.json"
    assert scaling.main([*SMALL, "--ranks", "1", "2", "3", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result == json.loads(file.read_text(encoding="utf-8"))
    alone, two, three = result["runs"]
    assert (alone["scaling"], alone["collectives_us"], alone["rpc_us"]) == (1.0, None, None)
    assert two["scaling"] == pytest.approx(two["decode_tok_s"] / alone["decode_tok_s"])
    assert 0 < two["collectives_us"] < 1e6
    assert 0 < two["rpc_us"] < 1e6
    assert three["ranks"] == 3
    assert "num_attention_heads=8 cannot be divided" in three["error"]
    assert [line.split()[0] for line in lines[:4]] == ["ranks", "1", "2", "3"]


def test_requests_too_long_are_refused() -> None:
    with pytest.raises(BenchError, match="context 4000"):
        scaling.main(["--shape=tiny", "--device=cpu", "--context=4000", "--ranks", "1"])


def test_a_collective_that_starts_early_counts_from_the_end_of_the_kernel_before() -> None:
    spans = [
        scaling.Span("_split_k", 100.0, 140.0),
        scaling.Span("_all_reduce_add_norm", 105.0, 149.0),  # programmatic launch
        scaling.Span("gemm", 150.0, 160.0),
        scaling.Span("ncclDevKernel_AllReduce", 162.0, 180.0),
    ]
    assert scaling.collective_spans(spans) == pytest.approx([9e-6, 18e-6])
