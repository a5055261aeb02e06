"""The README's numbers come from recorded runs, and what it links to exists."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = " ".join(README.split())


def test_links_and_images_exist() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert len(targets) > 5
    missing = [t for t in targets if "://" not in t and not (ROOT / t.split("#")[0]).exists()]
    assert not missing


def test_images_have_an_alt_text_with_a_number_of_the_figures_own() -> None:
    images = re.findall(r"!\[([^!]*)\]\(figures/(\w+)\.svg\)", TEXT)
    assert len(images) == 3
    for alt, name in images:
        own = (ROOT / "figures" / f"{name}.txt").read_text(encoding="utf-8")
        numbers = set(re.findall(r"\d+\.\d+|\[[\d, ]+\]", alt))
        assert numbers, name
        assert all(number in own for number in numbers), (name, numbers)


def test_speed_is_that_of_the_recorded_runs() -> None:
    small, classroom = (
        json.loads((ROOT / f"figures/data/bench_{name}_cpu.json").read_text(encoding="utf-8"))
        for name in ("smollm2", "classroom")
    )
    for result in (small, classroom):
        assert result["dtype"] == "float32"
        assert result["threads"] == 2
        assert (result["workload"]["requests"], result["peer"]["engine"]) == (32, "transformers")
        assert result["workload"]["input"] == result["workload"]["output"] == [32, 128]
        assert not result["dirty"]
    assert f"{small['ratio']['output_tok_s']:.2f} times as long for SmolLM2-135M" in TEXT
    assert f"and {classroom['ratio']['output_tok_s']:.2f} times for the classroom model" in TEXT
    alone = [result["ratio"]["batch1_tok_s"] for result in (small, classroom)]
    assert "{:.2f} and {:.2f} times as long".format(*alone) in TEXT


def test_speed_on_a_gpu_is_that_of_the_recorded_runs() -> None:
    def recorded(name: str) -> Any:
        return json.loads((ROOT / f"figures/data/{name}.json").read_text(encoding="utf-8"))

    ours, vllm, nano = (
        recorded(f"bench_qwen3-0.6b_h200_{name}") for name in ("nanoengine", "vllm", "nano-vllm")
    )
    rates = [result["output_tok_s"]["median"] for result in (ours, vllm, nano)]
    assert f"{rates[0]:,.0f} output tokens a second" in TEXT
    assert "vLLM {} gave {:,.0f} on".format(vllm["versions"]["vllm"], rates[1]) in TEXT
    assert f"nano-vllm {rates[2]:,.0f}." in TEXT
    limit = max(result["output_tokens"] / result["floor_s"] for result in (ours, vllm, nano))
    assert f"That is {rates[0] / limit:.0%}".replace("%", " %") in TEXT
    eight, large = (recorded(f"scaling_qwen3-{size}_h200")["runs"][1] for size in ("8b", "32b"))
    said = "{:.2f} times as fast as one for the shape of Qwen3-8B and {:.2f} times for Qwen3-32B"
    assert said.format(eight["scaling"], large["scaling"]) in TEXT
    small = recorded("scaling_qwen3-0.6b_h200")["runs"][1]
    assert f"for 0.6B they gain {small['scaling'] - 1:.0%}".replace("%", " %") in TEXT


@pytest.mark.parametrize("number", range(8))
def test_minutes_are_those_of_the_lessons(number: int) -> None:
    (path,) = (ROOT / "lessons").glob(f"{number:02}_*.ipynb")
    found = re.search(r"\*\*Time\.?\*\*\s+About (\w+(?: an hour)?)", path.read_text("utf-8"))
    assert found
    minutes = {"half an hour": "30"}.get(found[1], found[1])
    assert re.search(rf"^\| {number:02} .*\| {minutes} \|$", README, re.MULTILINE), minutes
