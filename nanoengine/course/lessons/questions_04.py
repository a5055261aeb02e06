"""Lesson 04's questions: the article's self-check on CUDA graphs, answered by doing."""

from nanoengine.course.lessons import draws_04
from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion

QUESTIONS = (
    ValueQuestion(
        id="04.q.launches",
        draw=draws_04.draw_launches,
        text=draws_04.launches_text,
        answer=draws_04.launches_answer,
        explain=draws_04.why_launches,
        where="section 1, Launch-bound",
    ),
    ChoiceQuestion(
        id="04.q.fixed",
        text="A graph was captured for 8 rows. What may be different at its next replay?",
        options=(
            Option(
                "The numbers in the buffers that its kernels read.",
                "same kernels, same addresses, same shapes; whatever lies at the addresses counts.",
                right=True,
            ),
            Option(
                "The tensors, if they have the same shape as at capture.",
                "a new tensor lies elsewhere; the graph goes on reading the captured address.",
            ),
            Option(
                "The number of rows, if it is smaller than 8.",
                "the kernels were launched for 8 rows and always compute 8; the rest is padding.",
            ),
            Option(
                "The Context: operators look it up anew.",
                "looking it up is Python, and no Python runs in a replay.",
            ),
        ),
        where="section 2, What a graph fixes",
    ),
    ValueQuestion(
        id="04.q.stop_iteration",
        draw=draws_04.draw_stop,
        text=draws_04.stop_text,
        answer=draws_04.stop_answer,
        explain=draws_04.why_stop,
        where="section 3, Buckets",
    ),
    ValueQuestion(
        id="04.q.padded_rows",
        draw=draws_04.draw_padded,
        text=draws_04.padded_text,
        answer=draws_04.padded_answer,
        explain=draws_04.why_padded,
        where="section 3, Buckets",
    ),
    ChoiceQuestion(
        id="04.q.padding",
        text="Padded rows run through the whole model. Why do they not corrupt the KV cache?",
        options=(
            Option(
                "Their slot is -1, and whoever stores K and V skips negative slots.",
                "the row is computed, but nothing of it is written.",
                right=True,
            ),
            Option(
                "Their context length is 0, so nothing is stored.",
                "the length limits what is read; where K and V are written is told by the slot.",
            ),
            Option(
                "Their block tables are padded with -1.",
                "tables are for reading; and padded rows keep old tables, not -1.",
            ),
            Option(
                "Their results are cut off: only outputs[:b] is used.",
                "true, but K and V are written inside the model, layer by layer, before that.",
            ),
        ),
        where="section 4, Padding",
    ),
    ChoiceQuestion(
        id="04.q.stale_tables",
        text="Row 40 of bucket 48 is padding, and its block table still names blocks of an earlier "
        "step. Who reads it?",
        options=(
            Option(
                "Nobody: its context length is 0, and attention reads no further than that.",
                "so the table may hold anything, and staging need not clear it.",
                right=True,
            ),
            Option(
                "Attention, but the old blocks belong to no one.",
                "they may well be another sequence's now; it is the length 0 that saves the read.",
            ),
            Option(
                "The store kernel, to find out where K and V go.",
                "it gets slots, not tables.",
            ),
        ),
        where="section 4, Padding",
    ),
    ChoiceQuestion(
        id="04.q.order",
        text="Why is the largest graph captured first?",
        options=(
            Option(
                "Its pool is large enough for the intermediates of all others, which share it.",
                "graphs run one at a time, so one memory serves them all.",
                right=True,
            ),
            Option(
                "Large batches come first when the engine starts.",
                "capture is over before any request; the order of requests does not matter.",
            ),
            Option(
                "A small graph cannot be captured after a large one was replayed.",
                "it could; nothing is replayed during capture anyway.",
            ),
            Option(
                "The buffers are allocated by the first capture.",
                "they are allocated before, for the largest batch; every graph uses slices.",
            ),
        ),
        where="section 5, Capture",
    ),
    ChoiceQuestion(
        id="04.q.first_run",
        text="Why does each body run once, as usual, before it is captured?",
        options=(
            Option(
                "What compiles or loads on a first call with this shape must not do so while "
                "recording.",
                "compiling waits for the device and allocates: both are refused in a capture.",
                right=True,
            ),
            Option(
                "The graph needs the right results in its output buffer.",
                "every replay writes them anew; what the buffer holds before does not matter.",
            ),
            Option(
                "To fill the KV cache.",
                "all rows are padding then: nothing is written.",
            ),
            Option(
                "To measure how long the step takes.",
                "nobody looks at the time.",
            ),
        ),
        where="section 5, Capture",
    ),
    ChoiceQuestion(
        id="04.q.decode_only",
        text="Why is decode captured and prefill not?",
        options=(
            Option(
                "Of decode only the batch size varies; prefills have any number of tokens.",
                "a few dozen shapes cover all decode steps; no list covers all prefills.",
                right=True,
            ),
            Option(
                "CUDA cannot record attention over fresh keys.",
                "it records any kernel; only the shapes would have to be known.",
            ),
            Option(
                "Prefill does not write to the KV cache.",
                "it writes K and V of every prompt token.",
            ),
            Option(
                "A prefill has fewer kernels than a decode step.",
                "about as many; but each has far more to compute, so launching matters less.",
            ),
        ),
        where="section 6, What stays eager",
    ),
    ChoiceQuestion(
        id="04.q.eager",
        text="An engine with graphs up to 512 sequences runs. Which of its steps is no replay?",
        options=(
            Option(
                "A prefill, and a decode step of 513 sequences.",
                "both find no graph, and run eagerly; that is slower, and right.",
                right=True,
            ),
            Option(
                "A decode step of 37 sequences, since there is no bucket 37.",
                "it replays the graph of 48, with 11 padded rows.",
            ),
            Option(
                "A decode step in which a sequence has just got a new block.",
                "block tables are data in a buffer: they may change at every replay.",
            ),
            Option(
                "The first decode step after a prefill.",
                "graphs are captured before the first request; they do not wait for one.",
            ),
        ),
        where="section 6, What stays eager",
    ),
)
