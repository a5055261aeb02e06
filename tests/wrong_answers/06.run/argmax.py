# check: five steps
# words: self.sample is never called
# why: temperatures, seeds and last_token are left out
# passes ordinary: no
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    with context_module.use_context(context):
        logits = self.model.compute_logits(self.run_model(input_ids, positions))
        tokens = logits.argmax(-1)
    return SampledTokens(tokens)
