"""The project's own text and the second phase: what is kept out, mixed, screened, masked."""

import doctest
import re
from collections import Counter

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from nanoengine.classroom import classroom_folder, data, mixture, network, refine, smalltalk, train
from nanoengine.classroom.evaluate import load_prompts
from nanoengine.classroom.parse import Document


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return smalltalk.project_documents()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(classroom_folder() / "tokenizer.json"))


def bare(text: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9 ]", "", text.lower()).split())


def test_doctests() -> None:
    assert doctest.testmod(smalltalk).failed == 0


def test_no_judged_prompt_is_in_the_text(documents: list[Document]) -> None:
    prompts = load_prompts()
    lines = {bare(piece) for d in documents for piece in d.pieces}
    assert not lines & {bare(prompt) for prompt in prompts["chat"]}
    for opening in prompts["text"]:
        assert not [line for line in lines if f"{line} ".startswith(f"{bare(opening)} ")]
    assert smalltalk.repeats_a_prompt("whats your NAME") is False
    assert smalltalk.repeats_a_prompt("What's your name?")
    assert smalltalk.repeats_a_prompt("once upon a time there was a fox")


def test_text_is_large_varied_clean_and_always_the_same(documents: list[Document]) -> None:
    assert documents == smalltalk.project_documents()
    assert len({d.pieces for d in documents}) == len(documents) > 10_000
    sources = Counter(d.name.split("/")[0] for d in documents)
    assert set(sources) == set(smalltalk.PROJECT_SOURCES)
    assert min(sources.values()) > 1000
    for piece in {piece for d in documents for piece in d.pieces}:
        assert piece.isascii()
        assert not re.search(r"[\[\]{}|]|  | [.,!?]|[.!?][.!?]|^!|\b[Aa] [aei]", piece), piece


def test_every_blank_has_a_list_and_every_tale_exists() -> None:
    loaded = smalltalk.patterns()
    text = str(loaded["dialogues"]) + str(loaded["tales"])
    blanks = {name.lower() for name in re.findall(r"\{(\w+?)\d?\}", text)}
    assert blanks <= set(loaded["lists"])
    assert set(re.findall(r"'!(\w+)'", text)) <= set(loaded["tales"])


def test_wordings_are_held_out_whole(documents: list[Document]) -> None:
    training, held_out = data.split(documents)
    groups = [{data.group_of(d) for d in part} for part in (training, held_out)]
    assert not groups[0] & groups[1]
    assert len(groups[1]) > 10


def test_blanks_stay_the_same_within_a_document() -> None:
    filler = smalltalk.Filler(np.random.default_rng(0))
    one, other = filler.fill("{food}"), filler.fill("{food2}")
    assert filler.fill("{Food} and {food2}").lower() == f"{one} and {other}".lower()
    assert one != other
    assert smalltalk.Filler(np.random.default_rng(0)).fill("a owl, a used car [x|x] .") == (
        "an owl, a used car x."
    )


def test_mixture_keeps_its_shares_and_refuses_unknown_sources(
    documents: list[Document], tokenizer: Tokenizer
) -> None:
    encoded = data.encode(tokenizer, documents[::40])
    renderer = data.Renderer(tokenizer)
    shares = {"smalltalk": 3.0, "tales": 1.0}
    stream = mixture.Mixture(encoded, renderer, shares, 0).stream(8000)
    assert np.array_equal(stream, mixture.Mixture(encoded, renderer, shares, 0).stream(8000))
    text = tokenizer.decode(stream.tolist(), skip_special_tokens=False)
    parts = text.split("<|endoftext|>")[:-1]
    sizes = Counter[bool]()
    for part in parts:
        assert part.count("<|im_start|>") in (0, 2, 4, 6)
        sizes["<|im_start|>" in part] += len(tokenizer.encode(part).ids)
    assert sizes[True] == pytest.approx(3 * sizes[False], rel=0.1)
    with pytest.raises(ValueError, match="no source 'austen': prepare it with classroom"):
        mixture.Mixture(encoded, renderer, {"austen": 1.0}, 0)


def test_attention_stays_inside_documents() -> None:
    mask = mixture.same_document(torch.tensor([[5, 0, 7, 8]]), end=0)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    model = network.build_model(train.SMOKE, train.SMOKE_VOCAB_SIZE).eval()
    alone = model(torch.tensor([[7, 8, 9]])).logits
    ids = torch.tensor([[5, 6, 0, 7, 8, 9]])
    packed = model(ids, attention_mask=mixture.same_document(ids, 0)).logits[:, 3:]
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("asked", "answer", "kept"),
    [
        ("Do you like trains?", "I love the sound of trains.", True),
        ("What do you think about rain?", "I'm so glad you asked about rain.", False),
        ("Do you like dogs?", "I'm a friendly, cheerful person with dogs.", False),
        ("Do you like dogs?", "I love playing with dogs and I love playing with dogs.", False),
        ("Where is the sea?", "Near the sea lives a man called Bacaleria.", False),
        ("Do you like soup?", "The weather is fine.", False),
        ("I like soup.", "i like soup", False),
    ],
)
def test_screened_replies(asked: str, answer: str, kept: bool) -> None:
    assert refine.keeps_to_the_point(Document("replies/x", "dialogue", (asked, answer))) is kept


def test_stories_that_run_in_circles_are_left_out() -> None:
    good = "A fox went to the river to look for fish, but the water was frozen from end to end."
    documents = [
        Document("stories/0", "prose", (good,)),
        Document("stories/1", "prose", ("She smiled at the girl. " * 5,)),
        Document("austen/0/0", "prose", ("She smiled at the girl. " * 5,)),
    ]
    assert refine.screen(documents) == [documents[0], documents[2]]


def test_second_phase_goes_on_from_the_first(tmp_path) -> None:
    first = tmp_path / "first"
    train.main(["--smoke", "--device", "cpu", "--out", str(first)])
    training, held_out, tokenizer = train.smoke_data()
    data_folder = tmp_path / "data"
    data_folder.mkdir()
    tokenizer.save(str(data_folder / "tokenizer.json"))
    data.save(data_folder / "corpus.npz", training, held_out)
    shape = [
        f"--{name.replace('_', '-')}={getattr(train.SMOKE, name)}"
        for name in ("hidden_size", "num_hidden_layers", "intermediate_size", "head_dim")
    ]
    arguments = ["--data", str(data_folder), "--device", "cpu", "--init", str(first), *shape]
    with pytest.raises(ValueError, match="embed_tokens"):
        train.main([*arguments[:-1], "--hidden-size=32", "--out", str(tmp_path / "no")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "SHARES", {"chitchat": 1.0})
        curve = train.main(
            [*arguments, "--epochs=1", "--mixture-tokens=1500", "--seq-len=64", "--batch-size=8",
             "--learning-rate=0", "--out", str(tmp_path / "second")]
        )  # fmt: skip
    weights = [
        (folder / "model.safetensors").read_bytes() for folder in (first, tmp_path / "second")
    ]
    assert weights[0] == weights[1]  # the learning rate was zero
    assert curve[-1]["held_out_loss"] < 0.7 * np.log(train.SMOKE_VOCAB_SIZE)
