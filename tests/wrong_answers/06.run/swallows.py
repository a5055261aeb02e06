# check: an exception
# words: MemoryError should come out | swallowed
# why: the failed step returns zeros
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
    except Exception:
        tokens = torch.zeros(len(batch.items), dtype=torch.int64)
    return SampledTokens(tokens)
