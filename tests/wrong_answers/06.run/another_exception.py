# check: an exception
# words: come out as it is
# why: the exception is replaced
# passes ordinary: yes
import torch

from nanoengine import context as context_module
from nanoengine.engine.sampling import SampledTokens


@torch.inference_mode()
def run(self, batch, record=None):
    self._record = record
    input_ids, positions, context = self.prepare(batch)
    try:
        with context_module.use_context(context):
            logits = self.model.compute_logits(self.run_model(input_ids, positions))
            tokens = self.sample_on_rank_0(logits, batch)
    except MemoryError:
        raise RuntimeError("the step failed")
    return SampledTokens(tokens)
