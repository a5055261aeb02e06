"""Where a decode step's time goes: the sums over invented kernels, and a real profile."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoengine import cli
from nanoengine.bench import profile
from nanoengine.bench.profile import Span, breakdown, group_of, table

NAMES = ["_split_k", "_decode", "_pick_token", "_add_rms_norm", "nvjet_tst_128x64", "aten::silu"]


def test_groups_are_those_of_our_kernels_and_of_torchs_operators() -> None:
    assert group_of("aten::linear") == group_of("_gemv") == "matrix products"
    assert group_of("sm90_xmma_gemm_bf16bf16") == "matrix products"
    assert group_of("aten::scaled_dot_product_attention") == group_of("_merge") == "attention"
    assert group_of("_pick_token") == "sampling"
    assert group_of("_gated") == "matrix products"
    assert group_of("_rotate_and_store") == group_of("_add_rms_norm") == "other kernels"


def test_overlapping_kernels_count_once_and_what_is_left_are_gaps() -> None:
    spans = [Span("_decode", 5.0, 9.0), Span("_gemv", 0.0, 6.0), Span("_gemv", 12.0, 14.0)]
    found = breakdown(spans, 2, 20.0)
    assert found["matrix products"] == (6 + 2) / 2
    assert found["attention"] == (9 - 6) / 2
    assert found["gaps"] == (20 - 11) / 2
    assert found["whole step"] == 10.0
    assert found["kernels"] == 1.5


@given(
    st.lists(
        st.builds(
            lambda name, start, length: Span(name, start, start + length),
            st.sampled_from(NAMES),
            st.integers(0, 1000),
            st.integers(0, 100),
        )
    ),
    st.integers(1, 9),
)
def test_groups_add_up_to_the_time_in_which_anything_ran(spans: list[Span], steps: int) -> None:
    covered = {tick for span in spans for tick in range(int(span.start), int(span.end))}
    found = breakdown(spans, steps, 2000.0)
    parts = sum(v for name, v in found.items() if name not in ("gaps", "whole step", "kernels"))
    assert parts * steps == pytest.approx(len(covered))
    assert parts + found["gaps"] == pytest.approx(found["whole step"])


def test_a_real_profile_is_in_the_json_and_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanoengine.bench.roofline.measure_copy_bandwidth", lambda device: 1e9)
    monkeypatch.setattr(
        "nanoengine.bench.roofline.measure_matmul_flops", lambda device, dtype: 1e10
    )
    arguments = ["bench", "--shape", "tiny", "--device", "cpu", "--requests", "2", "--input", "3"]
    arguments += ["--output", "2", "--repeats", "1", "--check", "0", "--profile", "3@40,1@50"]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed.splitlines()[-1])["profile"]
    assert list(found) == ["3@40", "1@50"]
    for values in found.values():
        assert 0 < values["matrix products"] < values["whole step"]
        assert values["attention"] > 0
        assert values["unprofiled step"] > 0
        assert values["launch"] > 0
    assert "3@40" in printed
    assert "gaps" in printed
    assert all(len(line) <= 80 for line in table(found))


def test_a_context_without_room_for_the_steps_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["bench", "--shape", "tiny", "--device", "cpu", "--requests", "1", "--input", "3"]
    arguments += ["--output", "2", "--repeats", "1", "--check", "0"]
    assert cli.main([*arguments, "--profile", f"1@{profile._STEPS}"]) == 1
    assert f"1@{profile._STEPS}" in capsys.readouterr().err
