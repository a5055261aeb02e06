"""Lesson 01, tensorization: from sequences to the integers that the model and operators see."""

from nanoengine.course.lessons import batches_01, slots_01
from nanoengine.course.lessons.questions_01 import QUESTIONS
from nanoengine.course.lessons.sequences import as_worker_sees
from nanoengine.course.registry import Exercise

__all__ = ["EXERCISES", "QUESTIONS", "TITLE"]

TITLE = "Tensorization"
_HOME = "nanoengine.engine.inputs"
_SCENARIOS = ("warm-up", "chunks", "prefix", "buckets", "small pool")

EXERCISES = (
    Exercise(
        id="01.slot_mapping",
        target=f"{_HOME}:slot_mapping",
        title="Where tokens live: slots",
        level="small",
        minutes=10,
        points=2,
        hints=(
            "The cache is one long row of slots, cut into blocks of block_size. The block table "
            "says which block of the cache holds the sequence's first block_size tokens, which "
            "the next, and so on. So each position leads to one slot, whatever its neighbours do.",
            "Split the position in two: which of the sequence's blocks (position // block_size), "
            "and which place inside it (position % block_size). You return one number for each "
            "position of range(start, end), so end - start numbers.",
            "slots = []; for position in range(start, end): look up block_table[position // "
            "block_size], times block_size, plus position % block_size; append it.",
        ),
        where="section 4, Slots",
        cases=slots_01.slot_cases,
        compare=slots_01.compare_slots,
        draw=slots_01.draw_slots,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="01.pad_block_tables",
        target=f"{_HOME}:pad_block_tables",
        title="Block tables as a rectangle",
        level="small",
        minutes=5,
        points=1,
        hints=(
            "A tensor is a rectangle, block tables are not: short ones are filled up on the right.",
            "The width is that of the longest table, 0 when there is none. A table of 3 blocks "
            "in a rectangle of width 5 gets two entries of -1 behind its own.",
            "width = max(len(table) for table in block_tables), with default=0; then "
            "[*table, *[-1] * (width - len(table))] for each table. Build new lists.",
        ),
        where="section 5, Block tables",
        cases=slots_01.table_cases,
        compare=slots_01.compare_tables,
        draw=slots_01.draw_tables,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="01.prepare_prefill",
        target=f"{_HOME}:prepare_prefill",
        title="Packing a prefill batch",
        level="core",
        minutes=30,
        points=5,
        uses=("inputs.slot_mapping", "inputs.pad_block_tables"),
        hints=(
            "Each sequence brings one chunk: tokens [start, end) with start = what is cached "
            "already and end = start + what is scheduled now. Lay the chunks end to end. Queries "
            "are these tokens only; keys are everything from position 0 up to end.",
            "Per sequence: input_ids, positions and slots grow by end - start entries; "
            "cu_seqlens_q grows by end - start and cu_seqlens_k by end, both start with 0 and "
            "have one entry more than there are sequences. A sequence without blocks (warm-up) "
            "gets no slots. Block tables: only when some key is older than this step.",
            "for seq in seqs: start = seq.num_cached_tokens; end = start + "
            "seq.num_scheduled_tokens; input_ids += seq[start:end]; positions += range(start, "
            "end); if seq.block_table: slots += inputs.slot_mapping(...); "
            "cu_seqlens_k.append(cu_seqlens_k[-1] + end); ... "
            "History exists when cu_seqlens_k[-1] > cu_seqlens_q[-1].",
        ),
        where="section 6, Prefill",
        cases=batches_01.prefill_cases,
        arguments=batches_01.prefill_arguments,
        compare=batches_01.compare_prefill,
        draw=batches_01.draw_prefill,
        scenarios=_SCENARIOS,
    ),
    Exercise(
        id="01.prepare_decode",
        target=f"{_HOME}:prepare_decode",
        title="One token a sequence: decode",
        level="core",
        minutes=15,
        points=3,
        uses=("inputs.slot_mapping", "inputs.pad_block_tables"),
        hints=(
            "A decode step feeds each sequence's newest token: it is counted in len(seq) but its "
            "K and V are not in the cache yet. This step writes them, then attends.",
            "With n = len(seq): the position is n - 1, the slot is that of position n - 1, and "
            "context_lens is n, since the new token attends to itself, too. Tables always.",
            "input_ids: seq.last_token; positions: len(seq) - 1; slot: "
            "inputs.slot_mapping(seq.block_table, n - 1, n, block_size)[0]; context_lens: "
            "len(seq); block_tables: inputs.pad_block_tables([seq.block_table for seq in seqs]).",
        ),
        where="section 7, Decode",
        cases=batches_01.decode_cases,
        arguments=batches_01.decode_arguments,
        compare=batches_01.compare_decode,
        draw=batches_01.draw_decode,
        adapt=as_worker_sees,
        scenarios=_SCENARIOS,
    ),
)
