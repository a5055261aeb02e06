"""`nanoengine generate`: complete one or many prompts."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nanoengine.commands.options import (
    Parser,
    add_engine_options,
    add_sampling_options,
    engine_options,
    sampling_params,
)
from nanoengine.engine.engine import Prompt
from nanoengine.engine.request import RequestOutput
from nanoengine.errors import RequestError
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

MAX_TOKENS = 128
TEMPERATURE = 0.7


def main(argv: Sequence[str]) -> int:
    """`nanoengine generate PROMPT... | --file F`: the texts, or one JSON object a line."""
    args = _parse(argv)
    params = sampling_params(args)
    texts = _read_prompts(args)
    with LLM(**engine_options(args)) as llm:
        prompts = [chat_prompt(llm, text) for text in texts] if args.chat else list(texts)
        if len(prompts) == 1 and not args.json:
            _stream(llm, prompts[0], params)
            return 0
        outputs = llm.generate(prompts, params, use_tqdm=sys.stderr.isatty())
    for number, (text, output) in enumerate(zip(texts, outputs, strict=True), start=1):
        if args.json:
            print(json.dumps(as_json(text, output), ensure_ascii=False))
        else:
            count = f"{len(output.token_ids)} tokens, {output.finish_reason}"
            print(f"[{number}/{len(texts)}] {text!r} ({count})\n{output.text}\n")
    return 0


def chat_prompt(llm: LLM, text: str) -> list[int]:
    """Token ids of a conversation that begins with `text`.

    Raises RequestError when the model has no tokenizer or no chat template.
    """
    tokenizer = llm.engine.tokenizer
    if tokenizer is None:
        raise RequestError("this model has no tokenizer, so it cannot be talked to: use another")
    return tokenizer.apply_chat_template([{"role": "user", "content": text}])


def as_json(prompt: str, output: RequestOutput) -> dict[str, object]:
    """One request's result as `--json` prints it."""
    return {
        "prompt": prompt,
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "num_reused_tokens": output.num_reused_tokens,
    }


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("nanoengine generate", description="Complete one or many prompts.")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="a prompt's text")
    parser.add_argument(
        "--file", metavar="FILE", help='a file with one prompt a line ("-": standard input)'
    )
    parser.add_argument("--chat", action="store_true", help="put prompts into the chat template")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a request, with its token ids"
    )
    add_sampling_options(parser, max_tokens=MAX_TOKENS, temperature=TEMPERATURE)
    add_engine_options(parser)
    args = parser.parse(argv)
    if bool(args.prompts) == bool(args.file):
        parser.error("give either prompts or --file")
    return args


def _read_prompts(args: argparse.Namespace) -> list[str]:
    """The prompts in order. Raises RequestError for a file that cannot be read or has none."""
    if not args.file:
        prompts: list[str] = args.prompts
        return prompts
    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"--file {args.file} cannot be read ({error}): give a text file in UTF-8"
        ) from error
    prompts = [line for line in text.splitlines() if line.strip()]
    if not prompts:
        raise RequestError(f"--file {args.file} holds no prompt: write one a line")
    return prompts


def _stream(llm: LLM, prompt: Prompt, params: SamplingParams) -> None:
    for piece in llm.stream(prompt, params):
        print(piece, end="", flush=True)
    print()
