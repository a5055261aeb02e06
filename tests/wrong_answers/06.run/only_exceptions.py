# check: an exception
# words: get_context() still finds
# why: Ctrl-C is no Exception
# passes ordinary: yes
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    context_module._state.current = context
    try:
        logits = self.model.compute_logits(self.run_model(input_ids, positions))
        tokens = self.sample_on_rank_0(logits, batch)
    except Exception:
        context_module._state.current = None
        raise
    context_module._state.current = None
    return SampledTokens(tokens)
