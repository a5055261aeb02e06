"""`nanoengine tour`: one prompt through the engine, step by step, read from its StepRecords."""

import argparse
import statistics
import time
from collections.abc import Sequence

from nanoengine.commands.generate import chat_prompt
from nanoengine.commands.options import Parser, add_engine_options, engine_options
from nanoengine.commands.tour_screen import Screen, Timing
from nanoengine.engine.record import StepRecord
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

PROMPT = "What is your favorite food?"
BLOCK_SIZE = 4  # so small that the few tokens of a prompt fill several blocks
NUM_BLOCKS = 256
MAX_TOKENS = 40
TEMPERATURE = 0.7
SEED = 0
_POOL = {"kvcache_block_size": BLOCK_SIZE, "num_kvcache_blocks": NUM_BLOCKS}
_WARM_UP = [1] * (2 * BLOCK_SIZE + 1)


def main(argv: Sequence[str]) -> int:
    """`nanoengine tour [PROMPT]`: at most a minute, about two screens."""
    args = _parse(argv)
    params = SamplingParams(
        temperature=args.temperature, max_tokens=args.max_tokens, seed=args.seed
    )
    records: list[StepRecord] = []
    # Every step is applied at once, so that a record and the sequence's state belong together.
    options = {**_POOL, **engine_options(args), "overlap": False}
    with LLM(on_step=records.append, **options) as llm:
        _warm_up(llm)
        records.clear()
        _walk(llm, args.prompt, params, records)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("nanoengine tour", description="Watch one prompt go through the engine.")
    parser.add_argument("prompt", nargs="?", default=PROMPT, help="default: %(default)r")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="default: %(default)s")
    parser.add_argument(
        "--temperature", type=float, default=TEMPERATURE, help="0: greedy; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    add_engine_options(parser)
    return parser.parse(argv)


def _warm_up(llm: LLM) -> None:
    """First calls are slow; and blocks used before make the tour's slots differ from positions."""
    llm.generate(_WARM_UP, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)


def _walk(llm: LLM, text: str, params: SamplingParams, records: list[StepRecord]) -> None:
    """The tour itself: `records` grows by one record a step."""
    tokenizer = llm.engine.tokenizer
    chat = tokenizer is not None and tokenizer.has_chat_template
    show = Screen(llm)
    start = time.perf_counter()
    stream = llm.stream(chat_prompt(llm, text) if chat else text, params)
    show.opening(text, stream.output, chat)
    for number in range(2):
        while len(records) <= number and not stream.output.finished:
            llm.engine.step()
        if len(records) > number:
            show.step(number + 1, records[number], params)
    show.heading("EVERY FURTHER STEP", "is a decode step like this, until the text ends")
    for piece in stream:
        print(piece, end="", flush=True)
    seconds = time.perf_counter() - start
    show.summary(stream.output, _timing(records, seconds))
    again = llm.generate([stream.output.prompt_token_ids], params, use_tqdm=False)[0]
    show.closing(again)


def _timing(records: list[StepRecord], seconds: float) -> Timing:
    """Times of all prefill runs, of the median decode run, and of the whole request."""
    took = [record.applied - record.launch_start for record in records]
    is_prefill = [record.batch.is_prefill for record in records]
    decode = [t for t, first in zip(took, is_prefill, strict=True) if not first]
    return Timing(
        prefill=sum(took) - sum(decode),
        decode=statistics.median(decode) if decode else 0.0,
        total=seconds,
    )
