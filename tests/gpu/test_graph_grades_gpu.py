"""Lesson 04 on a GPU: its probes drive real CUDA graphs, and grades are whole."""

import pytest

from nanoengine.course import exercises, grade
from nanoengine.course.grading import grading_session
from nanoengine.course.lessons import replay_04
from nanoengine.course.stubs import solution_source
from nanoengine.engine import cuda_graph

STALE = """
def stage_inputs(buffers, input_ids, positions, context, bucket):
    b = len(input_ids)
    buffers.input_ids[:b] = input_ids
    buffers.positions[:b] = positions
    buffers.slot_mapping[:b] = context.slot_mapping
    buffers.context_lens[:b] = context.context_lens
    buffers.block_tables[:b, : context.block_tables.shape[1]] = context.block_tables
"""


def toy(stage_inputs, device):
    return replay_04.replay_toy(cuda_graph.capture_all, stage_inputs, device)


def test_real_graphs_give_what_the_double_gives():
    library = cuda_graph.stage_inputs
    assert toy(library, "cuda") == toy(library, "cpu")


def test_stale_rows_spoil_real_graphs_too():
    names = {}
    exec(STALE, names)
    assert toy(names["stage_inputs"], "cuda") != toy(cuda_graph.stage_inputs, "cpu")


@pytest.mark.parametrize("exercise_id", ["04.stage_inputs", "04.capture_all"])
def test_a_grade_is_whole(exercise_id):
    with grading_session():
        result = grade(exercise_id, solution_source(exercises[exercise_id]))
    assert result.state == "pass", result
    assert result.checks[-1].name == "replay of real CUDA graphs"
    assert result.checks[-1].ok
