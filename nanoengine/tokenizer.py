"""Text to token ids and back, and chat messages to a prompt.

`tokenizers` is used directly: importing transformers costs seconds, so that happens only for
a folder without a tokenizer.json.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanoengine.errors import ModelError, ModelNotFound, RequestError

if TYPE_CHECKING:
    import jinja2
    from tokenizers import Tokenizer as Backend

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
# Where older folders keep the names of special tokens.
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
# The names under which a config declares special tokens and a chat template sees them.
_NAMED = [f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
_EXTRA = ("extra_special_tokens", "additional_special_tokens")


class Tokenizer:
    """The tokenizer of a model folder; gives the ids that transformers' AutoTokenizer gives.

    tokenizer.json decides how text is cut and which special tokens are put around it;
    tokenizer_config.json names the special tokens and holds the chat template, unless
    chat_template.jinja does. Raises ModelNotFound when the folder has no tokenizer and
    ModelError when its files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = _read_json(folder / CONFIG_FILE)
        names = _read_json(folder / SPECIAL_TOKENS_FILE) | self._config
        self.backend = _load_backend(folder)
        # A length limit or padding saved with the file is for training, not for prompts.
        self.backend.no_truncation()
        self.backend.no_padding()
        with _expected_form(folder / CONFIG_FILE):
            self.named_tokens = {n: _content(names[n]) for n in _NAMED if names.get(n) is not None}
            self._add_declared_tokens(names)
        added = self.backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; the model's embedding may be padded to more."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def eos_token_id(self) -> int | None:
        """Id of the token that ends a text, or None when the folder names none."""
        eos = self.named_tokens.get("eos_token")
        return None if eos is None else self.backend.token_to_id(eos)

    @property
    def has_chat_template(self) -> bool:
        """Whether `apply_chat_template` can be used."""
        return self._template_source is not None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, with the special tokens that this model puts around a text.

        Names of special tokens inside `text` become those tokens, as in transformers:
        with SmolLM2 "<|im_end|>" is the one id 2. Raises RequestError for what is no text.
        """
        return self._encode(text, add_special_tokens=True)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that form no character become U+FFFD, unknown ids nothing."""
        return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> list[int]:
        """Token ids of a conversation, up to where the model's next answer begins.

        `messages` are dictionaries such as {"role": "user", "content": "Hi"}; `variables` go to
        the template, for example enable_thinking=False with Qwen3. Special tokens written inside
        a message become those tokens, as in transformers: a user who types "<|im_end|>" ends the
        message there, so remove such names from text that you do not trust.

        Raises RequestError for no messages, for what is not a message, for a folder without a
        template, and for what the template itself refuses.
        """
        return self._encode(
            self.render_chat(messages, add_generation_prompt, **variables), add_special_tokens=False
        )

    def render_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """The text that `apply_chat_template` encodes; the same arguments and errors."""
        _check_messages(messages)
        values = self.named_tokens | {"tools": None, "documents": None} | variables
        template = self._template
        try:
            return template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **values,
            )
        except Exception as error:  # a template is a program: it divides by zero, or recurses
            raise RequestError(
                f"the chat template of {self.folder} refuses these messages: {error}"
            ) from error

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if not isinstance(text, str):
            raise RequestError(f"a prompt must be a str, got {type(text).__name__}: {text!r:.80}")
        try:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except BaseException as error:  # a lone surrogate is no Unicode text; a damaged file panics
            _pass_on_interrupts(error)
            raise RequestError(f"the text {text!r:.80} cannot be encoded: {error}") from error

    def _add_declared_tokens(self, names: dict[str, Any]) -> None:
        """Tokens that only the config declares, in the order of their ids, as transformers does."""
        from tokenizers import AddedToken

        declared = self._config.get("added_tokens_decoder") or {}
        known = {token.content for token in self.backend.get_added_tokens_decoder().values()}
        for _, entry in sorted(declared.items(), key=lambda item: int(item[0])):
            if entry["content"] not in known:
                self.backend.add_tokens([AddedToken(**entry)])
        special = list(self.named_tokens.values())
        for key in _EXTRA:
            extra = names.get(key) or ()
            special += map(_content, extra.values() if isinstance(extra, dict) else extra)
        self.backend.add_special_tokens([AddedToken(s, normalized=False) for s in special])

    @cached_property
    def _template_source(self) -> str | None:
        if (path := self.folder / TEMPLATE_FILE).is_file():
            return path.read_text(encoding="utf-8")
        source = self._config.get("chat_template")
        with _expected_form(self.folder / CONFIG_FILE):
            if isinstance(source, list):  # several templates, each with a name
                source = {entry["name"]: entry["template"] for entry in source}.get("default")
            return None if source is None else _content(source)

    @cached_property
    def _template(self) -> "jinja2.Template":
        if self._template_source is None:
            raise RequestError(
                f"{self.folder} has no chat template (neither {TEMPLATE_FILE} nor chat_template in "
                f"{CONFIG_FILE}); give the prompt as plain text, or use an instruct model"
            )
        return _compile(self._template_source)


def _compile(source: str) -> "jinja2.Template":
    """Templates come with downloaded models, so they run in jinja2's sandbox."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what to train on; for inference its body is all there is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, indent=indent, **{"ensure_ascii": False, **options})

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = to_json  # jinja2's own escapes HTML
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ModelError(f"the chat template cannot be compiled: {error}") from error


def _check_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError(
            f"messages must be a list of dictionaries, not empty, got {messages!r:.80}"
        )
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(
                f'a message must be like {{"role": "user", "content": "Hi"}}, got {message!r:.80}'
            )


def _load_backend(folder: Path) -> "Backend":
    path = folder / TOKENIZER_FILE
    if path.is_file():
        from tokenizers import Tokenizer as Backend

        _refuse_foreign_merges(path)
        try:
            return Backend.from_file(str(path))
        except BaseException as error:  # a bare Exception, or its Rust code panics
            _pass_on_interrupts(error)
            raise ModelError(f"{path} cannot be read as a tokenizer: {error}") from error
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        backend: Backend = loaded.backend_tokenizer
    except Exception as error:
        raise ModelNotFound(
            f"{folder} has no {TOKENIZER_FILE}, and transformers finds no other tokenizer there "
            f"({error}); copy the model's tokenizer files into the folder"
        ) from error
    return backend


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def _content(token: Any) -> str:
    """A special token is written as "<s>" or as {"content": "<s>", ...}."""
    text = token["content"] if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.80} is no text")
    return text


@contextmanager
def _expected_form(path: Path) -> Iterator[None]:
    """Around what takes a file's values apart: any surprise is one ModelError."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} has values of an unknown form ({error!r}): fetch it again"
        ) from None


def _pass_on_interrupts(error: BaseException) -> None:
    """A panic of the tokenizers library is a BaseException, and so is Ctrl-C."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _refuse_foreign_merges(path: Path) -> None:
    """Merges that do not fit the prefix of word parts: the tokenizers library aborts at them."""
    model: Any = _read_json(path).get("model") or {}
    with _expected_form(path):
        prefix = model.get("continuing_subword_prefix") or ""
        for merge in (model.get("merges") or ()) if prefix else ():
            right = (merge.split(" ", 1) if isinstance(merge, str) else merge)[1]
            if not right.startswith(prefix):
                raise ValueError(f"the merge {merge!r} has no {prefix!r}")
