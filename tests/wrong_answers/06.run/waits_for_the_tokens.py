# check: five steps
# words: reads the tokens | unread
# why: a handle comes back, but run has waited for the device before
# passes ordinary: yes
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    with context_module.use_context(context):
        hidden_states = self.run_model(input_ids, positions)
        logits = self.model.compute_logits(hidden_states)
        handle = SampledTokens(self.sample_on_rank_0(logits, batch))
        handle.tolist()
    return handle
