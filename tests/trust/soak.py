"""A long run of short requests: aborts, streams left early, preemptions, refusals, small pools.

    python tests/trust/soak.py --requests 50000 --json figures/data/soak.json

Not part of the test run (test_trust_soak.py runs a short one). It reports what must not grow or
go wrong over time: errors, KV blocks that did not come back, memory, and tokens that a dense
forward of transformers does not give. Exit status 1 when one of them is not as it must be.
"""

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny_models

from nanoengine import LLM, SamplingParams, environment
from nanoengine.engine.request import RequestOutput
from nanoengine.errors import RequestError
from nanoengine.layers import sampler
from nanoengine.llm import TextStream

OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "kvcache_block_size": 4,
    "num_kvcache_blocks": 150,  # 64 requests of up to 38 tokens want three times as many
    "max_num_seqs": 64,
    "max_num_batched_tokens": 256,
}
OPEN = 96  # requests that wait or run at a time
WARM_UP = 0.1  # of the requests: memory is compared with what it was after these
MAX_GROWTH = 0.02
ABORTED, STREAMED, REFUSED, CHECKED = 0.1, 0.05, 0.02, 0.04  # shares of the requests
GENERATED = 0.02  # share of the steps
SHARED = 6  # prompts begin with one of so many prefixes
STOP = "e"


def rss_bytes() -> int:
    """Resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Soak:
    """One run; `result` is what it found."""

    def __init__(self, llm: LLM, requests: int, seed: int) -> None:
        self.llm, self.engine, self.wanted = llm, llm.engine, requests
        self.random = random.Random(seed)
        self.open: dict[str, tuple[SamplingParams, RequestOutput]] = {}
        self.streams: list[TextStream] = []
        self.to_check: list[tuple[SamplingParams, RequestOutput]] = []
        self.count: Counter[str] = Counter()
        self.errors: list[str] = []
        self.rss: list[tuple[int, int]] = []
        draw = self.random.randrange
        self.prefixes = [[draw(tiny_models.VOCAB) for _ in range(12)] for _ in range(SHARED)]

    def run(self) -> None:
        """All requests, one engine step at a time."""
        every = max(1, self.wanted // 20)
        while self.count["requests"] < self.wanted or self.open or self.streams:
            while self.count["requests"] < self.wanted and len(self.open) < OPEN:
                self._add()
                if self.count["requests"] in (int(self.wanted * WARM_UP), self.wanted) or (
                    self.count["requests"] % every == 0
                ):
                    gc.collect()
                    self.rss.append((self.count["requests"], rss_bytes()))
            self._leave_some()
            try:
                self.engine.step()
                if self.random.random() < GENERATED:
                    self._generate()
            except Exception as error:  # counted, and the run goes on: the engine must survive it
                self.errors.append(f"step: {error!r:.200}")
                self.open.clear()
            self.count["steps"] += 1
            for request_id in [i for i, (_, output) in self.open.items() if output.finished]:
                self._take(*self.open.pop(request_id))

    def _params(self) -> SamplingParams:
        pick = self.random
        way = pick.choice(
            [{"temperature": 0}, {"temperature": 1.0}, {"top_k": 20}, {"top_p": 0.9, "min_p": 0.02}]
        )
        return SamplingParams(
            **way,
            max_tokens=pick.randint(1, 16),
            min_tokens=0,
            ignore_eos=pick.random() < 0.5,
            seed=pick.randrange(2**63),
            stop=STOP if pick.random() < 0.1 else None,
        )

    def _add(self) -> None:
        """One more request: kept, streamed, or refused."""
        self.count["requests"] += 1
        pick = self.random
        length = pick.randint(1, 10)
        prompt = [pick.randrange(tiny_models.VOCAB) for _ in range(length)]
        if pick.random() < 0.5:
            prefix = pick.choice(self.prefixes)
            prompt = prefix[: pick.randint(1, len(prefix))] + prompt
        params = self._params()
        if pick.random() < REFUSED:
            try:
                self.engine.add_request([*prompt, tiny_models.VOCAB], params)
                self.errors.append("a token outside the vocabulary was taken")
            except RequestError:
                self.count["refused"] += 1
            return
        if pick.random() < STREAMED:
            stream = self.llm.stream(prompt, params)
            self.streams.append(stream)
            return
        request_id = self.engine.add_request(prompt, params)
        self.open[request_id] = params, self.engine.output(request_id)

    def _generate(self) -> None:
        """A call of generate while others run: all of its requests end in it."""
        prompts = [[self.random.randrange(tiny_models.VOCAB)] * 3 for _ in range(3)]
        params = [self._params() for _ in prompts]
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        self.count["requests"] += len(prompts)
        self.count["generated while others ran"] += len(prompts)
        for wanted, output in zip(params, outputs, strict=True):
            self._take(wanted, output)

    def _leave_some(self) -> None:
        """Abort a few, read a few streams and leave some early."""
        pick = self.random
        # each request lives for about ten steps
        if self.open and pick.random() < ABORTED * len(self.open) / 10:
            request_id = pick.choice(list(self.open))
            self.engine.abort(request_id)
            params, output = self.open.pop(request_id)
            if output.finish_reason == "abort":
                self.count["aborted"] += 1
                self.count["tokens"] += len(output.token_ids)
                self._keep(params, output)
            else:  # the abort read the tokens in flight, and one of them was the last
                self._take(params, output)
        for stream in list(self.streams):
            chance = pick.random()
            if chance < 0.05:
                stream.close()
                self.count["streams closed early"] += stream.output.finish_reason == "abort"
                self.streams.remove(stream)
            elif chance < 0.08:
                self.streams.remove(stream)  # dropped: aborted when the next step begins
                self.count["streams dropped"] += 1
            elif stream.output.finished:
                if "".join(stream) not in stream.output.text:
                    self.errors.append("a stream gave text that its output has not")
                self.streams.remove(stream)
                self.count["streams read"] += 1

    def _take(self, params: SamplingParams, output: RequestOutput) -> None:
        """A request has ended by itself."""
        self.count[f"ended by {output.finish_reason}"] += 1
        self.count["tokens"] += len(output.token_ids)
        self.count["prefix tokens reused"] += output.num_reused_tokens
        if output.finish_reason == "length" and len(output.token_ids) != params.max_tokens:
            self.errors.append(f"{len(output.token_ids)} tokens, {params.max_tokens} were asked")
        tokenizer = self.engine.tokenizer
        assert tokenizer is not None
        text = tokenizer.decode(output.token_ids)
        if params.stop:
            text = text.partition(STOP)[0]
        if output.text != text:
            self.errors.append(f"text {output.text!r:.80} is not {text!r:.80}")
        self._keep(params, output)

    def _keep(self, params: SamplingParams, output: RequestOutput) -> None:
        """Choose outputs for `wrong_outputs`."""
        if self.random.random() < CHECKED:
            self.to_check.append((params, output))

    def wrong_outputs(self, oracle: tiny_models.Oracle) -> int:
        """Checked requests with a token that the dense forward, sampled alike, does not give."""
        wrong = 0
        for params, output in self.to_check:
            start = len(output.prompt_token_ids)
            ids = output.prompt_token_ids + output.token_ids
            if not output.token_ids:
                continue
            logits = oracle.logits(ids[:-1], start - 1)
            wrong += expected(logits, params, start) != output.token_ids
        return wrong

    def result(self, wrong: int) -> dict[str, Any]:
        """Counts, and what must be zero or small."""
        stats = self.engine.stats()
        before = next(rss for at, rss in self.rss if at >= int(self.wanted * WARM_UP))
        leaked = stats["num_blocks"] - stats["free_blocks"]
        return {
            **dict(sorted(self.count.items())),
            "preemptions": stats["preemptions"],
            "errors": len(self.errors),
            "first_errors": self.errors[:5],
            "leaked_blocks": leaked,
            "leaked_requests": len(self.engine.requests),
            "checked_outputs": len(self.to_check),
            "checked_tokens": sum(len(output.token_ids) for _, output in self.to_check),
            "wrong_outputs": wrong,
            "rss_after_warm_up_bytes": before,
            "rss_at_end_bytes": self.rss[-1][1],
            "rss_growth": self.rss[-1][1] / before - 1.0,
            "rss_by_request": self.rss,
        }


def expected(logits: torch.Tensor, params: SamplingParams, start: int) -> list[int]:
    """The tokens that dense logits [n, vocab] give, the first at position `start`."""
    count = len(logits)
    seed = 0 if params.seed is None else params.seed
    noise = sampler.uniform_noise([seed] * count, list(range(start, start + count)))
    temperatures = torch.full((count,), float(params.temperature))
    kept = sampler.keep_top(
        logits,
        temperatures,
        torch.full((count,), max(params.top_k, 0)),
        torch.full((count,), float(params.top_p)),
        torch.full((count,), float(params.min_p)),
    )
    tokens: list[int] = sampler.sample(
        kept, temperatures, torch.from_numpy(np.array(noise))
    ).tolist()
    return tokens


def failures(result: dict[str, Any]) -> list[str]:
    """What is not as it must be, in words."""
    found = [
        f"{name}={result[name]}, must be 0"
        for name in ("errors", "leaked_blocks", "leaked_requests", "wrong_outputs")
        if result[name]
    ]
    found += [
        f"{name}=0: the run was too easy"
        for name in ("aborted", "preemptions", "streams dropped", "refused", "checked_outputs")
        if not result.get(name)
    ]
    if result["rss_growth"] >= MAX_GROWTH:
        found.append(f"rss_growth={result['rss_growth']:.2%}, must be below {MAX_GROWTH:.0%}")
    return found


def soak(requests: int, seed: int = 0) -> dict[str, Any]:
    """Run it in a temporary folder; returns the result."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="nanoengine-soak-") as name:
        folder = tiny_models.save(Path(name), "qwen3", tokenizer=True)
        start = time.perf_counter()
        with LLM(folder, **OPTIONS) as llm:
            run = Soak(llm, requests, seed)
            run.run()
            seconds = time.perf_counter() - start
            return {"seconds": seconds, **run.result(run.wrong_outputs(tiny_models.Oracle(folder)))}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="A long run of short requests.")
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    facts = {
        "benchmark": "soak",
        "engine": "nanoengine",
        "shape": "tiny random Qwen3, 2 layers, byte-level tokenizer",
        "measured": time.strftime("%Y-%m-%d"),
        "device": environment.device_name(torch.device("cpu")),
        "versions": environment.versions(),
        **environment.git_state(),
        "seed": args.seed,
        "options": OPTIONS,
    }
    result = facts | soak(args.requests, args.seed)
    problems = failures(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    for problem in problems:
        print(f"soak: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
