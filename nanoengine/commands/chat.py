"""`nanoengine chat`: a conversation whose earlier turns stay in the prefix cache."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from nanoengine.commands.options import (
    Parser,
    add_engine_options,
    add_sampling_options,
    engine_options,
    sampling_params,
)
from nanoengine.commands.terminal import dim
from nanoengine.errors import RequestError
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams
from nanoengine.tokenizer import Tokenizer

MAX_TOKENS = 256
TEMPERATURE = 0.7
_HELP = "/reset forgets the conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer"
_ASK = "> "


class Conversation:
    """The messages so far, and the engine that answers them.

    Every turn sends the whole conversation again; the engine finds the KV of its beginning in
    the prefix cache, so only what is new has to be computed.
    """

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None = None) -> None:
        self.llm, self.params = llm, params
        self.tokenizer = _chat_tokenizer(llm)
        self.system = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.system)

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = list(self.system)

    def answer(self, text: str) -> None:
        """Print the answer as it comes, then how many prompt tokens were reused.

        Raises RequestError, and keeps the conversation as it was, when it grew too long.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        stream = self.llm.stream(self.tokenizer.apply_chat_template(asked), self.params)
        with _noticed_interrupt() as interrupted:
            for piece in stream:
                print(piece, end="", flush=True)
                if interrupted.is_set():
                    stream.close()
        output = stream.output
        self.messages = [*asked, {"role": "assistant", "content": output.text}]
        stopped = ", stopped" if output.finish_reason == "abort" else ""
        print()
        print(
            dim(
                f"[{output.num_reused_tokens} of {len(output.prompt_token_ids)} prompt tokens "
                f"reused, {len(output.token_ids)} new{stopped}]"
            ),
            flush=True,
        )


def main(argv: Sequence[str]) -> int:
    """`nanoengine chat`: reads a line, streams the answer, until /quit or the end of input."""
    args = _parse(argv)
    params = sampling_params(args)
    with LLM(**engine_options(args)) as llm:
        conversation = Conversation(llm, params, args.system)
        print(f"{llm.engine.model_config.architecture}: {_HELP}")
        for line in _lines():
            if line == "/quit":
                break
            if line == "/reset":
                conversation.reset()
                print("(the conversation is forgotten)", flush=True)
            elif line.startswith("/"):
                print(f"({line.split()[0]} is no command: {_HELP})", flush=True)
            else:
                _answer(conversation, line)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("nanoengine chat", description=f"Talk with a model. {_HELP}.")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    add_sampling_options(parser, max_tokens=MAX_TOKENS, temperature=TEMPERATURE)
    add_engine_options(parser)
    return parser.parse(argv)


def _answer(conversation: Conversation, line: str) -> None:
    try:
        conversation.answer(line)
    except RequestError as error:  # too long, most likely: the conversation itself goes on
        print(f"nanoengine chat: {error} (/reset starts anew)", file=sys.stderr, flush=True)


def _lines() -> Iterator[str]:
    """What the user types, stripped; Ctrl-C at the prompt only clears the line."""
    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):  # line editing and history, where Python has them
            import readline  # noqa: F401
    while True:
        try:
            line = input(_ASK if interactive else "").strip()
        except EOFError:
            if interactive:
                print()
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            print(f"\n({_HELP})")
            continue
        if line:
            yield line


@contextmanager
def _noticed_interrupt() -> Iterator[threading.Event]:
    """Inside, the first Ctrl-C only sets the event: an interrupted step would empty the cache.

    A second one raises KeyboardInterrupt as always.
    """
    noticed = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, notice)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)


def _chat_tokenizer(llm: LLM) -> Tokenizer:
    tokenizer = llm.engine.tokenizer
    if tokenizer is None or not tokenizer.has_chat_template:
        missing = "tokenizer" if tokenizer is None else "chat template"
        raise RequestError(
            f"this model has no {missing}, so it cannot chat: use an instruct model, or "
            "`nanoengine generate` for plain text"
        )
    return tokenizer
