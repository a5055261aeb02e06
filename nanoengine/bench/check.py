"""Are the tokens right? A fast engine that computes something else has measured nothing."""

from typing import Any

import torch

from nanoengine.bench import BenchError
from nanoengine.bench.peers import NanoengineSide
from nanoengine.bench.workload import Workload

# How far below the dense forward's best logit a token may be, in parts of the largest logit:
# two correct programs add in different orders, and a near tie may fall either way.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def spread(workload: Workload, count: int) -> Workload:
    """`count` requests from all over the workload."""
    step = max(1, len(workload) // max(count, 1))
    return workload[::step][:count]


@torch.inference_mode()
def compare_with_dense(
    requests: Workload, outputs: list[list[int]], model: Any
) -> dict[str, float | int | bool]:
    """Compare greedy outputs with a dense forward: no cache, no batch, no padding.

    model: the same weights in transformers. Each request's prompt and output go through it at
    once; at every position the output's token must be its most likely one, or nearly.

    Raises BenchError when a token is further off than rounding explains.
    """
    device = next(model.parameters()).device
    tolerance = _TOLERANCE[model.dtype]
    tokens = agreeing = 0
    worst = 0.0
    for index, ((prompt, _), output) in enumerate(zip(requests, outputs, strict=True)):
        ids = torch.tensor([prompt + output], device=device)
        logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        chosen = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
        gaps = (logits.amax(1) - chosen) / logits.abs().amax(1)
        tokens += len(output)
        agreeing += int((gaps == 0).sum())
        worst = max(worst, float(gaps.max()))
        wrong = (~(gaps <= tolerance)).nonzero().flatten().tolist()  # a NaN is wrong, too
        if wrong:
            place = wrong[0]
            raise BenchError(
                f"request {index}, output token {place}: {output[place]} is by "
                f"{float(gaps[place]):.2g} of the largest logit below the dense forward's best "
                f"(tolerance {tolerance}): the engine computes something else than the model"
            )
    return {
        "requests": len(requests),
        "tokens": tokens,
        "equal_to_dense": agreeing,
        "largest_relative_gap": worst,
        "tolerance": tolerance,
        "ok": True,
    }


def greedy_outputs(side: NanoengineSide, requests: Workload) -> list[list[int]]:
    """What the engine gives for all of them in one batch, most likely tokens only."""
    return side.run(requests, temperature=0.0)
