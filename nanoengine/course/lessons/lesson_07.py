"""Lesson 07, the benchmark: measuring honestly, and telling when somebody did not."""

from nanoengine.course.lessons import floors_07, rates_07, workloads_07
from nanoengine.course.lessons.questions_07 import QUESTIONS
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "The benchmark"
_SCENARIOS = ("benchmark", "benchmark in chunks")

EXERCISES = (
    Exercise(
        id="07.make_workload",
        target="nanoengine.bench.workload:make_workload",
        title="The same work for everybody",
        names=("random", "LARGEST_ID"),
        level="core",
        minutes=15,
        points=2,
        hints=(
            "A generator with a seed gives the same numbers in the same order, each time. So what "
            "decides is the order in which you draw, and that you draw nothing else in between.",
            "One random.Random(seed). First a list of all prompts; for each of them the length, "
            "then that many ids. After that a list of all output lengths. Then cut the ids and "
            "pair the two lists.",
            "draw = random.Random(seed); prompts = [[draw.randint(0, LARGEST_ID) for _ in "
            "range(draw.randint(min_len, max_len))] for _ in range(num_requests)]; outputs the "
            "same way, from low to high, where low is min_len unless min_output is given.",
        ),
        where="section 2, The work",
        cases=workloads_07.workload_cases,
        observe=workloads_07.observe_workload,
        compare=workloads_07.compare_workload,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="07.throughput",
        target="nanoengine.bench.metrics:throughput",
        title="Three rates of one job",
        helpers=("_rate",),
        level="core",
        minutes=20,
        points=3,
        hints=(
            "Each rate is tokens over seconds. Write down for each of the three which tokens count "
            "and which seconds; only the seconds of the first rate include waiting.",
            "Walk over the runs once; keep new tokens and seconds, of prefill and decode apart. A "
            "run's seconds begin at its start or where the run before it ended, whichever is "
            "later. A run without seconds gives a rate of 0.0.",
            "before = events[0].start; for each event: busy[event.is_prefill] += event.end - "
            "max(event.start, before); new[event.is_prefill] += len(event.request_ids); before = "
            "event.end. The whole job lasts from events[0].start to the last before.",
        ),
        where="section 3, Three rates",
        cases=rates_07.rate_cases,
        arguments=rates_07.rate_arguments,
        observe=rates_07.observe_rates,
        compare=rates_07.compare_rates,
        draw=rates_07.draw_rates,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="07.floor_seconds",
        target="nanoengine.bench.roofline:floor_seconds",
        title="No engine can be faster",
        helpers=("kv_positions",),
        level="core",
        minutes=20,
        points=3,
        hints=(
            "Count the bytes that must come out of memory, whoever programs it: in every decode "
            "step all weights once, and the K and V of every token that a sequence has by then.",
            "Steps: the longest output less one. Positions: for a request of p and n tokens the "
            "sum of p + 1, p + 2, ..., p + n - 1. Bytes over bytes per second, plus the prefill's "
            "operations over operations per second.",
            "steps = max((n - 1 for _, n in lengths), default=0); positions = sum((n - 1) * p + "
            "(n - 1) * n // 2 for p, n in lengths); return (steps * weight_bytes + positions * "
            "kv_bytes_per_token) / bytes_per_second + prefill_flops / flops_per_second.",
        ),
        where="section 6, The floor",
        cases=floors_07.floor_cases,
        arguments=floors_07.floor_arguments,
        compare=floors_07.compare_floor,
        scenarios=_SCENARIOS,
    ),
)
