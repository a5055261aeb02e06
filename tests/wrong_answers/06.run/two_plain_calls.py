# check: an exception
# words: get_context() still finds | however the run ends
# why: set and reset without finally
# passes ordinary: yes
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    context_module._state.current = context
    logits = self.model.compute_logits(self.run_model(input_ids, positions))
    tokens = self.sample_on_rank_0(logits, batch)
    context_module._state.current = None
    return SampledTokens(tokens)
