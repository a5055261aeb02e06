# check: ranks
# words: not broadcast | next step
# why: the other ranks never see the tokens
# passes ordinary: yes
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
            tokens = self.sample(logits, batch)
        else:
            tokens = torch.zeros(len(batch.items), dtype=torch.int64)
    return SampledTokens(tokens)
