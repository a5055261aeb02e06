# check: five steps
# words: run_model should find the step's context | use_context
# why: the context is never in use
# passes ordinary: no
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    logits = self.model.compute_logits(self.run_model(input_ids, positions))
    return SampledTokens(self.sample_on_rank_0(logits, batch))
