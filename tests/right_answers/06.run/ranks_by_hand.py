import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    with context_module.use_context(context):
        logits = self.model.compute_logits(self.run_model(input_ids, positions))
        if self.group.rank == 0:
            tokens = self.group.broadcast(self.sample(logits, batch))
        else:
            tokens = self.group.broadcast(torch.empty(len(batch.items), dtype=torch.int64))
            self.last_token[torch.tensor([seq.row for seq in batch.seqs])] = tokens
    return SampledTokens(tokens)
