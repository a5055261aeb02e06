import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    scope = context_module.use_context(context)
    scope.__enter__()
    try:
        hidden_states = self.run_model(input_ids, positions)
        logits = self.model.compute_logits(hidden_states)
        tokens = self.sample_on_rank_0(logits, batch)
    finally:
        scope.__exit__(None, None, None)
    return SampledTokens(tokens)
