"""Lesson 06, ModelRunner: sampling, the five steps of `run`, and all parts together."""

from nanoengine.course.lessons import run_words_06, runs_06, samples_06
from nanoengine.course.lessons.questions_06 import QUESTIONS
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "ModelRunner"

EXERCISES = (
    Exercise(
        id="06.sample",
        target="nanoengine.layers.sampler:sample",
        title="From logits to tokens",
        level="core",
        minutes=25,
        points=4,
        names=("GREEDY_BELOW",),
        hints=(
            "Lay the tokens' probabilities end to end on a line from 0 to 1: each token owns a "
            "part as long as its probability. The number is a point on that line. Whose part is "
            "it in? A cold row (temperature 0) takes the largest logit and needs no line.",
            "In float32 (or wider): divide each row by its temperature (by 1 where it is cold), "
            "softmax, cumsum. The token is the number of borders that are at most the number. "
            "Then two corrections: rounding must not lead past the last token that is possible, "
            "and cold rows take argmax.",
            "cold = temperatures < GREEDY_BELOW; scaled = logits.float() / torch.where(cold, 1.0, "
            "temperatures)[:, None]; borders = scaled.softmax(-1).cumsum(-1); token = (borders <= "
            "noise[:, None]).sum(-1); the last possible token of a row is the largest index whose "
            "logit is not -inf; torch.minimum(token, last); torch.where(cold, logits.argmax(-1), "
            "token)",
        ),
        where="section 3, Looking a number up",
        cases=samples_06.sample_cases,
        arguments=samples_06.sample_arguments,
        observe=samples_06.observe_sample,
        compare=samples_06.compare_sample,
        draw=samples_06.draw_sample,
        scenarios=("sampled", "buckets", "small pool"),
    ),
    Exercise(
        id="06.run",
        target="nanoengine.engine.model_runner:ModelRunner.run",
        title="The five steps",
        level="core",
        minutes=20,
        points=4,
        names=("context_module",),
        hints=(
            "The runner has a method for every step; run puts them in order. What is left to "
            "decide: which of them stand inside the context's scope, and what is set before "
            "anything else.",
            "First self._record. Then self.prepare(batch) gives input_ids, positions, context. "
            "Inside `with context_module.use_context(context)`: self.run_model, then "
            "self.model.compute_logits, then self.sample_on_rank_0(logits, batch). Return "
            "SampledTokens of the result: a handle, no list.",
            "self._record = record; input_ids, positions, context = self.prepare(batch); with "
            "context_module.use_context(context): hidden_states = self.run_model(input_ids, "
            "positions); logits = self.model.compute_logits(hidden_states); tokens = "
            "self.sample_on_rank_0(logits, batch); return SampledTokens(tokens)",
        ),
        where="section 6, Assembling run",
        cases=runs_06.run_cases,
        observe=runs_06.observe_run,
        compare=run_words_06.compare_run,
        scenarios=("warm-up", "chunks", "prefix", "buckets", "sampled"),
    ),
)
