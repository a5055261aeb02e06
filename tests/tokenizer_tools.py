"""Small tokenizer folders of the kinds that real models have, built in a second."""

import json
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# An added token that is not special: it belongs to the text, as Qwen3's "<think>" does. The
# space is no character of the byte-level alphabet, which writes spaces as "Ġ".
ADDED = "<think hard>"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 2024, isn't it?",
    "今天天气很好，我们去公园散步吧。今天天气很好。",
    "Emoji 🙂🙃 and families 👨‍👩‍👧, accents é à ü, and\n\nline breaks.",
    "def f(x):\n    return x + 1\n" * 3,
] * 5
# The split pattern of Qwen's tokenizers.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(vocab_size: int = 400) -> Tokenizer:
    """Qwen's kind: NFC, a split by a pattern, byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(ADDED, normalized=False, special=False)])
    return tokenizer


def with_bos(tokenizer: Tokenizer) -> Tokenizer:
    """Llama 3's habit: the post-processor puts a token before every text."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 0)]
    )
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Llama 2's kind: "▁" for spaces, unknown characters as byte tokens such as <0xF0>."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [chr(code) for code in range(ord("!"), ord("~") + 1)]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "▁"), ("今", "天")]
    pieces += ["今", "天", *("".join(pair) for pair in merges)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def metaspace() -> Tokenizer:
    """A decoder that treats the first token in its own way."""
    pieces = ["<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz", "▁a", "▁b", "▁c", "an"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [("▁", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, **config: Any) -> Path:
    """Write a folder as a model ships it; `config` goes to tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    content = {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def chat_folder(folder: Path, **config: Any) -> Path:
    """A byte-level tokenizer with ChatML, as SmolLM2's and Qwen3's."""
    tokens = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "chat_template": CHATML}
    return save(byte_level(), folder, **(tokens | config))
