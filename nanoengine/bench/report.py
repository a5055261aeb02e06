"""A benchmark's result: one JSON object for machines, a small table for people."""

import statistics
from collections.abc import Iterator
from typing import Any

from nanoengine.bench import profile, roofline
from nanoengine.bench.measure import Measurement
from nanoengine.bench.workload import Workload
from nanoengine.engine.model_runner import ModelRunner


def floor(runner: ModelRunner, workload: Workload) -> dict[str, Any]:
    """The least seconds for the workload on this device, and what they are made of."""
    lengths = [(len(prompt), count) for prompt, count in workload]
    bandwidth = roofline.measure_copy_bandwidth(runner.device)
    flops_per_second = roofline.measure_matmul_flops(runner.device, runner.dtype)
    weight_bytes = roofline.decode_weight_bytes(runner)
    kv_bytes = roofline.kv_bytes_per_token(runner)
    flops = roofline.prefill_flops(runner, [prompt for prompt, _ in lengths])
    decode = roofline.floor_seconds(lengths, weight_bytes, kv_bytes, bandwidth)
    whole = roofline.floor_seconds(
        lengths, weight_bytes, kv_bytes, bandwidth, flops, flops_per_second
    )
    return {
        "floor_s": whole,
        "floor": {
            "decode_s": decode,
            "prefill_s": whole - decode,
            "copy_bytes_per_s": bandwidth,
            "matmul_flops_per_s": flops_per_second,
            "decode_weight_bytes": weight_bytes,
            "kv_bytes_per_token": kv_bytes,
            "prefill_flops": flops,
        },
    }


def assemble(facts: dict[str, Any], found: list[Measurement]) -> dict[str, Any]:
    """One object: this engine's numbers at the top level, the peer's and the ratios below."""
    ours = found[0].to_dict()
    seconds = ours["output_tokens"] / ours["output_tok_s"]["median"]
    result = facts | ours | {"fraction_of_floor": facts["floor_s"] / seconds, "peer": None}
    if len(found) > 1:
        theirs = found[1].to_dict()
        result["peer"] = theirs
        result["ratio"] = {
            "output_tok_s": ours["output_tok_s"]["median"] / theirs["output_tok_s"]["median"],
            "output_tok_s_by_repeat": [
                mine / other
                for mine, other in zip(
                    ours["output_tok_s"]["runs"], theirs["output_tok_s"]["runs"], strict=True
                )
            ],
            "prefill_tok_s": ours["prefill_tok_s"] / theirs["prefill_tok_s"],
            "batch1_tok_s": theirs["batch1_ms"] / ours["batch1_ms"],
        }
    return result


def table(result: dict[str, Any]) -> Iterator[str]:
    """The result for a person, within 80 columns."""
    work = result["workload"]
    yield (
        f"{work['requests']} requests, {work['prompt_tokens']} prompt and "
        f"{work['output_tokens']} output tokens"
    )
    yield f"{'':<14}{'output tok/s':>14}{'prefill tok/s':>15}{'batch 1, ms':>13}   repeats"
    for side in (result, result["peer"]):
        if side:
            runs = ", ".join(f"{rate:.1f}" for rate in side["output_tok_s"]["runs"])
            yield (
                f"{side['engine']:<14}{side['output_tok_s']['median']:>14.1f}"
                f"{side['prefill_tok_s']:>15.1f}{side['batch1_ms']:>13.2f}   {runs}"
            )
    if "ratio" in result:
        ratio = result["ratio"]
        yield (
            f"{'ratio':<14}{ratio['output_tok_s']:>13.2f}x{ratio['prefill_tok_s']:>14.2f}x"
            f"{ratio['batch1_tok_s']:>12.2f}x"
        )
    seconds = statistics.median(
        result["output_tokens"] / rate for rate in result["output_tok_s"]["runs"]
    )
    yield (
        f"floor of this machine {result['floor_s']:.2f} s, took {seconds:.2f} s: "
        f"{result['fraction_of_floor']:.1%} of the floor's rate"
    )
    if "profile" in result:
        yield from profile.table(result["profile"])
    if "check" in result:
        check = result["check"]
        equal, count = check["equal_to_dense"], check["tokens"]
        rest = f", the rest within {check['largest_relative_gap']:.1e}" if equal < count else ""
        yield f"checked: {equal} of {count} greedy tokens equal a dense forward's{rest}"
