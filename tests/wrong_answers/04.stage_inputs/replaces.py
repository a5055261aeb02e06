# check: one row
# words: buffers.input_ids is another tensor afterwards
# why: the graph still reads the old memory
# passes ordinary: no
import torch


def stage_inputs(buffers, input_ids, positions, context, bucket):
    pad = bucket - len(input_ids)
    buffers.input_ids = torch.nn.functional.pad(input_ids, (0, pad))
    buffers.positions = torch.nn.functional.pad(positions, (0, pad))
    buffers.slot_mapping = torch.nn.functional.pad(context.slot_mapping, (0, pad), value=-1)
    buffers.context_lens = torch.nn.functional.pad(context.context_lens, (0, pad))
    buffers.block_tables = context.block_tables
