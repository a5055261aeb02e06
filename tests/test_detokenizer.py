"""Deltas add up to the whole text for any ids; stop strings are found however text is cut."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_tools import ADDED, CORPUS, byte_fallback, chat_folder, metaspace, save
from tokenizers import pre_tokenizers

from nanoengine.detokenizer import IncrementalDetokenizer, StopStrings
from nanoengine.errors import RequestError
from nanoengine.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
KINDS = {
    "byte level": lambda path: chat_folder(path),
    "byte fallback": lambda path: save(byte_fallback(), path, eos_token="</s>"),
    "metaspace": lambda path: save(metaspace(), path),
}


@pytest.fixture(scope="module", params=list(KINDS))
def tokenizer(request, tmp_path_factory):
    return Tokenizer(KINDS[request.param](tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def bytes_tokenizer(tmp_path_factory):
    return Tokenizer(chat_folder(tmp_path_factory.mktemp("tokenizer")))


def deltas(tokenizer, ids):
    stream = IncrementalDetokenizer(tokenizer)
    return [*(stream.push(i) for i in ids), stream.flush()]


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_deltas_add_up_for_any_ids(tokenizer, data):
    # ids past the vocabulary come out of models whose embedding is padded
    some_id = st.integers(0, tokenizer.vocab_size + 3)
    ids = data.draw(st.lists(st.one_of(some_id, st.sampled_from([0, 1, 2])), max_size=30))
    assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids)


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_any_bytes(bytes_tokenizer, data):
    """Broken UTF-8 with special and added tokens anywhere, one token a byte."""
    alphabet = byte_ids(bytes_tokenizer)
    some_byte = st.sampled_from([byte for byte in alphabet if byte >= ord("a")])
    ids = [alphabet[byte] for byte in data.draw(st.lists(some_byte, max_size=12))]
    other = [*sorted(bytes_tokenizer.special_ids), bytes_tokenizer.backend.token_to_id(ADDED)]
    for token in data.draw(st.lists(st.sampled_from(other), max_size=3)):
        ids.insert(data.draw(st.integers(0, len(ids))), token)
    assert "".join(deltas(bytes_tokenizer, ids)) == bytes_tokenizer.decode(ids)


@cache
def byte_ids(tokenizer):
    """The id of each byte that occurs in UTF-8, read off how the library writes characters."""
    library = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    shown = {}
    for code in [*range(0x800), *range(0x800, 0xD800, 0x400), *range(0xE000, 0x110000, 0x1000)]:
        text = library.pre_tokenize_str(chr(code))[0][0]
        shown |= dict(zip(chr(code).encode(), text, strict=True))
    return {byte: tokenizer.backend.token_to_id(char) for byte, char in shown.items()}


@given(
    text=st.lists(
        st.one_of(st.text(max_size=6), st.sampled_from(["🙂", "今天", " the", ADDED, "👨‍👩‍👧"])),
        max_size=8,
    ).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_no_half_character_ever(tokenizer, text):
    text = text.replace(REPLACEMENT, "")
    ids = tokenizer.encode(text)
    parts = deltas(tokenizer, ids)
    assert REPLACEMENT not in "".join(parts)
    assert "".join(parts) == tokenizer.decode(ids)


def test_a_character_comes_with_its_last_token(bytes_tokenizer):
    ids = bytes_tokenizer.encode("a🙂🦊b")
    stream = IncrementalDetokenizer(bytes_tokenizer)
    shown = ""
    for count, token in enumerate(ids, start=1):
        shown += stream.push(token)
        so_far = bytes_tokenizer.decode(ids[:count])
        assert shown == so_far.rstrip(REPLACEMENT)
    assert len(ids) > 4  # the fox was cut into tokens, or this shows nothing
    assert stream.flush() == ""


def test_specials_between_the_halves_of_a_character(bytes_tokenizer):
    halves = bytes_tokenizer.encode("🦊")
    assert len(halves) > 1
    ids = [0, halves[0], 2, *halves[1:], 1]
    assert deltas(bytes_tokenizer, ids) == ["", "", "", *[""] * (len(halves) - 2), "🦊", "", ""]


def test_an_output_starts_fresh(bytes_tokenizer):
    halves = bytes_tokenizer.encode("🦊")
    assert "".join(deltas(bytes_tokenizer, halves[:1])) == REPLACEMENT
    assert "".join(deltas(bytes_tokenizer, halves[1:])) == bytes_tokenizer.decode(halves[1:])


def test_leading_spaces(tokenizer):
    for text in (" a", "  a", "a", " ", "a b"):
        ids = tokenizer.encode(text)
        assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids)
        assert "".join(deltas(tokenizer, ids * 2)) == tokenizer.decode(ids * 2)


def test_work_grows_with_the_tokens_only(tokenizer, monkeypatch):
    """Ids handed to the decoder, all together: at most a few a token, whatever came before."""
    ids = [i for line in CORPUS for i in tokenizer.encode(line)]
    decoded = []

    class Spy:
        def __getattr__(self, name):
            return getattr(real, name)

        def decode(self, some, **options):
            decoded.extend(some)
            return real.decode(some, **options)

    real = tokenizer.backend
    monkeypatch.setattr(tokenizer, "backend", Spy())
    deltas(tokenizer, ids)
    assert len(decoded) <= 3 * len(ids) + 1


def oracle(text, stops):
    """Read the text one character at a time; the longest stop string that ends here wins."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=8),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4),
)
@settings(max_examples=500, deadline=None)
def test_stop_strings_against_a_naive_search(pieces, stops):
    search = StopStrings(stops)
    text, found = "", None
    for piece in pieces:
        safe, found = search.push(piece)
        text += safe
        if found:
            break
    text += search.flush()
    assert (text, found) == oracle("".join(pieces), stops)


@given(
    text=st.text("ab", max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_only_possible_beginnings_are_held_back(text, stops):
    search = StopStrings(stops)
    shown = ""
    for count, char in enumerate(text, start=1):
        safe, found = search.push(char)
        shown += safe
        if found:
            return
        held = text[len(shown) : count]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_stop_across_three_tokens():
    search = StopStrings(["\nUser:", "END"])
    assert search.push("Hello\n") == ("Hello", None)
    assert search.push("Us") == ("", None)
    assert search.push("er: no") == ("", "\nUser:")
    assert search.push("late token") == ("", "\nUser:")
    assert search.flush() == ""


def test_a_false_start_is_given_back():
    search = StopStrings(["\nUser:"])
    assert search.push("a\nUse") == ("a", None)
    assert search.push("d") == ("\nUsed", None)
    assert search.push("\n") == ("", None)
    assert search.flush() == "\n"


def test_no_stop_strings_hold_nothing_back():
    assert StopStrings([]).push("anything") == ("anything", None)


@pytest.mark.parametrize("stops", [[""], ["a", ""], "END", [None], [3]])
def test_bad_stop_strings(stops):
    with pytest.raises(RequestError, match="non-empty strings"):
        StopStrings(stops)
