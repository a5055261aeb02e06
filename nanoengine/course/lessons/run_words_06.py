"""What a wrong `run` is told: the first step, in running order, that was given something else."""

from collections.abc import Callable
from typing import Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show

RIGHT, OTHER, NOT_CALLED, PAST = (
    "the right one", "something else", "not called", "called past run_model"
)  # fmt: skip
THIS, OLD = "this run's", "the last run's"


def compare_run(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first step, in running order, that was given something else."""
    for key, words in _WORDS.items():
        wanted, given = expected.get(key), got.get(key)
        if wanted != given:
            return Difference(words(wanted, given))
    found = _returned(expected["returned"], got["returned"])
    if expected["reads"] != got["reads"] and (found is None or not found.binding):
        return Difference(
            "run reads the tokens: that waits for the device, before the next step can be "
            "launched. Give back the handle unread"
        )
    return found


def _returned(wanted: Any, given: Any) -> Difference | None:
    if wanted == given:
        return None
    kind, tokens = given
    if kind == "NoneType":
        return Difference(
            "run should return SampledTokens, on every rank; it returned None: is a `return` "
            "missing?"
        )
    if kind == "list":
        return Difference(
            "run should return SampledTokens(tokens), yours returns a list: reading the numbers "
            "here waits for the device, before the next step can be launched"
        )
    if wanted[1] != tokens:
        return Difference(f"the tokens should be {wanted[1]}, yours are {show(tokens)}")
    return Difference(
        f"the contract says SampledTokens, you returned a {kind}: right numbers, but on a GPU "
        "whoever reads them waits for later steps, too",
        binding=False,
    )


def _input_words(step: str, wanted_words: str) -> Callable[[Any, Any], str]:
    def words(wanted: Any, given: Any) -> str:
        if given == NOT_CALLED:
            return f"{step} is never called"
        if given == PAST:
            return (
                "self.model is called directly: self.run_model decides whether a captured graph "
                "is replayed; past it, none ever is"
            )
        if wanted == NOT_CALLED:
            return f"{step} is called on rank 1: only rank 0 has all logits, and samples"
        return f"{step} should be given {wanted_words}, it gets something else"

    return words


def _context_words(step: str) -> Callable[[Any, Any], str]:
    def words(wanted: Any, given: Any) -> str:
        return (
            f"{step} should find {wanted}, it finds {given}: call it inside `with "
            "context_module.use_context(context)`"
        )

    return words


def _record_words(wanted: Any, given: Any) -> str:
    if given == OLD:
        return (
            "self._record still is the last run's record, and would be overwritten: set "
            "self._record = record first, also when it is None"
        )
    return f"while preparing, self._record should be {wanted}, it is {given}: set it first"


def _mode_words(wanted: Any, given: Any) -> str:
    if given == "no_grad":
        return (
            "torch.no_grad() is not enough: the graphs' buffers were made in inference mode and "
            "can be written only in it. Take @torch.inference_mode()"
        )
    return (
        "gradients are recorded: every step's activations would be kept for a backward pass that "
        "never comes. Keep @torch.inference_mode() above the def"
    )


def _raised_words(wanted: Any, given: Any) -> str:
    if not given:
        return f"{wanted} should come out of run, your code swallowed it"
    return f"{wanted} should come out as it is, {given} came out"


def _after_words(wanted: Any, given: Any) -> str:
    return (
        f"after run there should be {wanted}, get_context() still finds {given}: its end must come "
        "however the run ends (`with`, or try ... finally)"
    )


def _broadcast_words(wanted: Any, given: Any) -> str:
    if given == NOT_CALLED:
        return (
            "self.sample_on_rank_0 is not called. Every rank calls it: on the others it waits for "
            "rank 0's tokens, their next step's inputs"
        )
    if not given:
        return (
            "the sampled tokens are not broadcast: the other ranks feed them in their next step. "
            "self.sample_on_rank_0 does both"
        )
    return f"the tokens should be broadcast once, they were {given} times"


_WORDS: dict[str, Callable[[Any, Any], str]] = {
    "prepare": _input_words("self.prepare", "the batch"),
    "record": _record_words,
    "model": _input_words("self.run_model", "prepare's input_ids and positions"),
    "model's context": _context_words("self.run_model"),
    "mode": _mode_words,
    "head": _input_words("compute_logits", "run_model's hidden states"),
    "head's context": _context_words("compute_logits"),
    "sampler": _input_words("self.sample", "the logits and the batch"),
    "left out": lambda wanted, given: _broadcast_words(0, NOT_CALLED),
    "raised": _raised_words,
    "after": _after_words,
    "broadcasts": _broadcast_words,
}
