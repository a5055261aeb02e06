"""Lesson 06's questions: who samples, the look-up and the race by hand, noise, the whole step."""

import random
from typing import Any

import torch

from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion
from nanoengine.layers import sampler

_TENTHS = 10
# what happens in a run, and whether on rank 0 alone
_ACTIONS = {
    "input_ids, positions and the context are made": False,
    "the model's layers run": False,
    "logits of a part of the vocabulary are computed": False,
    "temperatures and noise become tensors": True,
    "a token of each row is chosen": True,
    "the tokens are written into last_token": False,
    "the context is reset": False,
}
# one whole decode step, in calling order
CHAIN = (
    "Scheduler.schedule chooses the sequences of the step",
    "BlockManager gives a sequence the block that its next token needs",
    "ModelRunner.prepare makes tensors and the context",
    "the model's forward writes K and V and gives hidden states",
    "the Sampler chooses a token of each sequence",
    "the tokens are read and appended, full blocks are hashed, finished sequences leave",
)


def _draw_look_up(rng: random.Random) -> dict[str, Any]:
    """Probabilities in tenths, and a number that lies on no border."""
    cuts = sorted(rng.sample(range(1, _TENTHS), 3))
    tenths = [b - a for a, b in zip([0, *cuts], [*cuts, _TENTHS], strict=True)]
    return {"tenths": tenths, "noise": rng.randrange(_TENTHS) / _TENTHS + 0.05}


def _look_up(drawn: dict[str, Any]) -> int:
    logits = torch.tensor([drawn["tenths"]]).log()
    tokens = sampler.sample(logits, torch.ones(1), torch.tensor([drawn["noise"]]))
    return int(tokens[0])


def _shares(drawn: dict[str, Any]) -> list[float]:
    return [tenth / _TENTHS for tenth in drawn["tenths"]]


def _why_look_up(drawn: dict[str, Any], given: Any) -> str:
    tenths = drawn["tenths"]
    if given == tenths.index(max(tenths)):
        return "that is the most likely token; here the number decides."
    if isinstance(given, int) and given == _look_up(drawn) + 1:
        return "tokens are counted from 0."
    return "sum the probabilities from the left until the sum is larger than the number."


def _draw_race(rng: random.Random) -> dict[str, Any]:
    """Rates in tenths and waiting times whose arrivals differ clearly."""
    while True:
        drawn = _draw_look_up(rng)
        drawn["draws"] = [rng.randrange(1, 30) / 10 for _ in drawn["tenths"]]
        arrivals = sorted(_arrivals(drawn))
        winner = _race(drawn)
        plain = drawn["draws"].index(min(drawn["draws"]))
        if arrivals[1] > 1.1 * arrivals[0] and plain != winner:
            return drawn


def _arrivals(drawn: dict[str, Any]) -> list[float]:
    return [draw / share for draw, share in zip(drawn["draws"], _shares(drawn), strict=True)]


def _race(drawn: dict[str, Any]) -> int:
    arrivals = _arrivals(drawn)
    return arrivals.index(min(arrivals))


def _why_race(drawn: dict[str, Any], given: Any) -> str:
    draws, arrivals = drawn["draws"], _arrivals(drawn)
    if given == draws.index(min(draws)):
        return "the smallest draw, but a likely token runs faster: divide by its probability."
    products = [draw * share for draw, share in zip(draws, _shares(drawn), strict=True)]
    if given in (arrivals.index(max(arrivals)), products.index(min(products))):
        return "the first to arrive wins: the smallest draw / probability."
    return "compute draw / probability for every token; the smallest is the first to arrive."


def _draw_ranks(rng: random.Random) -> dict[str, Any]:
    return {"shown": rng.sample(list(_ACTIONS), len(_ACTIONS)), "size": rng.choice((2, 4, 8))}


def _ranks_text(drawn: dict[str, Any]) -> str:
    rows = [f"  {i}) {action}" for i, action in enumerate(drawn["shown"], 1)]
    head = f"The engine runs on {drawn['size']} ranks. Which of these happen on rank 0 alone?"
    return "\n".join([f"{head} A list of their numbers, in rising order.", *rows])


def _rank_0(drawn: dict[str, Any]) -> list[int]:
    return [number for number, action in enumerate(drawn["shown"], 1) if _ACTIONS[action]]


def _why_ranks(drawn: dict[str, Any], given: Any) -> str:
    right, shown = _rank_0(drawn), drawn["shown"]
    if not isinstance(given, list) or not all(n in range(1, len(shown) + 1) for n in given):
        return f"give a list of numbers from 1 to {len(shown)}."
    if sorted(given) == right:
        return "the right ones, but write them in rising order, each once."
    extra = [shown[number - 1] for number in given if number not in right]
    if not extra:
        return "something is missing: what does only the one who samples need?"
    if "last_token" in extra[0]:
        return "every rank feeds these tokens in its next step; it gets them by broadcast."
    if "logits" in extra[0]:
        return "every rank computes its part of the logits; rank 0 gathers them."
    return f"'{extra[0]}' is every rank's work: each runs the model on its own part."


def _draw_chain(rng: random.Random) -> dict[str, Any]:
    return {"shown": rng.sample(range(len(CHAIN)), len(CHAIN))}


def _chain_text(drawn: dict[str, Any]) -> str:
    rows = [f"  {i}) {CHAIN[link]}" for i, link in enumerate(drawn["shown"], 1)]
    return "\n".join(["One decode step, from beginning to end: a list of the numbers.", *rows])


def _chain(drawn: dict[str, Any]) -> list[int]:
    return [1 + drawn["shown"].index(link) for link in range(len(CHAIN))]


def _why_chain(drawn: dict[str, Any], given: Any) -> str:
    right = _chain(drawn)
    if not isinstance(given, list) or sorted(map(str, given)) != sorted(map(str, right)):
        return f"give a list with each of 1 to {len(CHAIN)} once."
    if given.index(right[1]) > given.index(right[2]):
        return "the slot mapping needs the new block: it is given while the step is scheduled."
    if given[-1] != right[-1]:
        return "tokens can be appended only when they have been sampled."
    return "look at the picture of section 1: the calls stand in their order."


QUESTIONS = (
    ValueQuestion(
        id="06.q.chain",
        draw=_draw_chain,
        text=_chain_text,
        answer=_chain,
        explain=_why_chain,
        where="section 1, One whole step",
    ),
    ValueQuestion(
        id="06.q.look_up",
        draw=_draw_look_up,
        text=lambda d: (
            f"Four tokens, 0 to 3, have probabilities {_shares(d)}; the row's number is "
            f"{d['noise']:.2f}. Which token is chosen?"
        ),
        answer=_look_up,
        explain=_why_look_up,
        where="section 3, Looking a number up",
    ),
    ValueQuestion(
        id="06.q.race",
        draw=_draw_race,
        text=lambda d: (
            f"A race: four tokens, 0 to 3, have probabilities {_shares(d)}, and exponential draws "
            f"{d['draws']}. Which token wins?"
        ),
        answer=_race,
        explain=_why_race,
        where="section 4, A race",
    ),
    ChoiceQuestion(
        id="06.q.agree",
        text="You sample a million tokens from the same probabilities by look-up and a million by "
        "race, each with its own noise. What do the two have in common?",
        options=(
            Option(
                "The share of each token, up to chance.",
                "both choose token i with probability p_i; a single draw need not be the same.",
                right=True,
            ),
            Option(
                "Every single token: both are exact.",
                "exact means the right probabilities; which token a draw gives is a matter of how "
                "the noise is used.",
            ),
            Option(
                "Only the most likely token; the race prefers it.",
                "a likely token wins more often, exactly as often as its probability says.",
            ),
            Option(
                "Nothing: the race needs one number for each token of the vocabulary.",
                "it needs more noise, but the probabilities it gives are the same.",
            ),
        ),
        where="section 4, A race",
    ),
    ChoiceQuestion(
        id="06.q.noise",
        text="A request with a seed shares its batch with others. Its noise comes from seed and "
        "position alone. What would break with one generator for the whole engine?",
        options=(
            Option(
                "Its text would depend on who else is in the batch, and on preemptions.",
                "each draw of another request would move this one along the generator's sequence.",
                right=True,
            ),
            Option(
                "The tokens would no longer have the right probabilities.",
                "a shared generator is random enough; what is lost is that a run can be repeated.",
            ),
            Option(
                "Nothing, as long as the engine's own seed is fixed.",
                "the order of draws still changes with every other request that comes or goes.",
            ),
            Option(
                "Greedy requests would change, too.",
                "they use no noise at all.",
            ),
        ),
        where="section 5, Noise that can be repeated",
    ),
    ValueQuestion(
        id="06.q.rank0",
        draw=_draw_ranks,
        text=_ranks_text,
        answer=_rank_0,
        explain=_why_ranks,
        where="section 6, Assembling run",
    ),
    ChoiceQuestion(
        id="06.q.handle",
        text="Why does run return a handle instead of the article's list of token ids?",
        options=(
            Option(
                "Reading the ids waits for the device; with a handle the next step can be launched "
                "before.",
                "the host prepares step N+1 while the device still computes step N.",
                right=True,
            ),
            Option(
                "A list would be too large for 512 sequences.",
                "512 numbers are nothing; waiting for them is the cost.",
            ),
            Option(
                "The ids are only known on rank 0.",
                "rank 0 is who asks; that alone needs no handle.",
            ),
        ),
        where="section 6, Assembling run",
    ),
)
