"""One execution of the model: from the sequences that the scheduler picked to sampled tokens."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from nanoengine import context as context_module
from nanoengine.attention.base import choose_backend
from nanoengine.config import EngineConfig
from nanoengine.context import Context, get_context
from nanoengine.distributed.group import SINGLE, TPGroup
from nanoengine.dummy_weights import draw_weights
from nanoengine.engine import cuda_graph, head_graph, inputs, kv_cache, upload, warm_up
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import (
    SampledTokens,
    SamplingInputs,
    pick_tokens,
    sampling_arrays,
    sampling_inputs,
)
from nanoengine.engine.sampling_graph import NOTHING, stage_sampling
from nanoengine.engine.sequence import Batch
from nanoengine.errors import ConfigError, NotEnoughMemory
from nanoengine.kernels.binding import bind_kernels
from nanoengine.models.config import ModelConfig
from nanoengine.models.qwen3 import Qwen3ForCausalLM
from nanoengine.weights import build_model, load_weights

if TYPE_CHECKING:  # importing the GPU's kernels needs Triton
    from nanoengine.kernels.gpu import GpuKernels


class ModelRunner:
    """The model (one rank's part of it), its KV cache and its graphs on one device."""

    def __init__(
        self, config: EngineConfig, model_config: ModelConfig, folder: Path, group: TPGroup = SINGLE
    ) -> None:
        self.config, self.model_config, self.group = config, model_config, group
        self.device = config.resolve_device()
        self.dtype = config.resolve_dtype(model_config.dtype, self.device)
        self.block_size = config.block_size(self.device)
        self.max_model_len = config.max_model_len or model_config.max_position_embeddings
        self.max_num_seqs = min(config.max_num_seqs, config.max_num_batched_tokens)
        self.choice = choose_backend(
            config.attention_backend, self.device, self.dtype, config.use_graphs(self.device)
        )
        self.model: Qwen3ForCausalLM = build_model(
            Qwen3ForCausalLM,
            self.dtype,
            self.device,
            model_config,
            self.choice.backend,
            self.max_model_len,
            group,
        )
        if config.load_format == "dummy":
            draw_weights(self.model, config.dummy_seed)
        else:
            load_weights(self.model, folder)
        group.agree("weights are loaded")
        self.kernels = self.choice.kernels
        bind_kernels(self.model, self.kernels)
        # row -> the sequence's newest token; the next step reads it here before the host knows it
        # (one row more, the last: row -1, of padding, may be written)
        self.last_token = torch.zeros(self.max_num_seqs + 1, dtype=torch.int64, device=self.device)
        self.head: head_graph.HeadGraphs | None = None
        self._wanted: tuple[Batch, SamplingInputs] | None = None
        self.kv_cache = self._allocate_kv_cache()
        self.buckets: list[int] = []
        self._record: StepRecord | None = None
        if self.kernels is not None and self.device.type == "cuda":
            self._prepare_gpu()
        elif config.use_graphs(self.device):
            self._capture_graphs()

    @property
    def num_kvcache_blocks(self) -> int:
        """Blocks in the KV pool."""
        return self.kv_cache.shape[2]

    @torch.inference_mode()
    def run(self, batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        """Run the model once over a batch and sample a token for each of its sequences.

        Five steps: tensors and the context; hidden states; logits; tokens, sampled on rank 0
        alone; the end of the context, also after an exception. `record` becomes self._record,
        where the steps write down what happens (None: nothing is written). The tokens stay on the
        device; whoever needs the numbers asks the returned handle.
        """
        self._record = record
        input_ids, positions, context = self.prepare(batch)  # 1: tensors, and the context
        with context_module.use_context(context):  # 5: reset at the end, also after an exception
            hidden_states = self.run_model(input_ids, positions)  # 2: eager, or a graph's replay
            logits = self.model.compute_logits(hidden_states)  # 3
            tokens = self.sample_on_rank_0(logits, batch)  # 4
        return SampledTokens(tokens)

    def prepare(self, batch: Batch) -> upload.PreparedRun:
        """The batch's integer lists as tensors: input_ids, positions and the context.

        The sampling's inputs come in the same upload, and wait in self._wanted for step 4.
        """
        lists: inputs.PrefillInputs | inputs.DecodeInputs
        wanted = None
        if self.group.rank == 0:  # the others know no request's parameters
            wanted = sampling_arrays(batch, self.model_config.vocab_size)
        more = [] if wanted is None else wanted.arrays
        if batch.is_prefill:
            lists = inputs.prepare_prefill(batch.seqs, self.block_size)
        else:
            lists = inputs.prepare_decode(batch.seqs, self.block_size)
        (input_ids, positions, context), tensors = upload.upload_run(lists, self.device, more)
        self._wanted = None if wanted is None else (batch, wanted.uploaded(tensors))
        if self._record is not None:
            self._record.inputs, self._record.context = lists, context
        # (a prompt's tokens are all known)
        if not batch.is_prefill and not self._resolves_late(batch) and min(lists.input_ids) < 0:
            input_ids = self._resolve(input_ids)
        return input_ids, positions, context

    def run_model(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Hidden states [n, hidden]: prefill runs eagerly, decode replays the smallest graph."""
        context = get_context()
        bucket = None
        if not context.is_prefill:
            bucket = cuda_graph.pick_bucket(len(input_ids), self.buckets)
        if self._record is not None:
            self._record.bucket = bucket
        if bucket is None:
            hidden: torch.Tensor = self.model(input_ids, positions)
            return hidden
        self._stage(input_ids, positions, context, bucket)
        self.graphs[bucket].replay()
        return self.buffers.hidden_states[: len(input_ids)]

    def _stage(
        self, input_ids: torch.Tensor, positions: torch.Tensor, context: Context, bucket: int
    ) -> None:
        """Fill the graph's buffers: `cuda_graph.stage_inputs`, or the one kernel that does it."""
        sampling, to_sampling = NOTHING
        if self.head is not None:
            wanted = None if self._wanted is None else self._wanted[1]
            sampling, to_sampling = self.head.staging(wanted, len(input_ids), bucket)
        if self.kernels is None or not self._stages_by_kernel:
            cuda_graph.stage_inputs(self.buffers, input_ids, positions, context, bucket)
            stage_sampling(sampling, to_sampling, bucket)
            return
        lengths, tables = context.decode_tensors()
        b = self.buffers
        source = (input_ids, positions, context.slot_mapping, lengths, tables)
        target = (b.input_ids, b.positions, b.slot_mapping, b.context_lens, b.block_tables)
        kernels = cast("GpuKernels", self.kernels)  # a CPU's graphs are doubles, staged above
        kernels.stage_decode(source + sampling, target + to_sampling, bucket, self.last_token)

    def sample_on_rank_0(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """[b] tokens; rank 0's also reach the others' last_token: their next step needs them."""
        if self.group.rank == 0:
            return self.group.broadcast(self.sample(logits, batch))
        tokens = torch.empty(len(batch.items), dtype=torch.int64, device=self.device)
        (rows,) = upload.upload([np.array([seq.row for seq in batch.seqs], np.int64)], self.device)
        self.last_token[rows] = self.group.broadcast(tokens)
        return tokens

    def sample(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """[b, vocab] logits -> [b] tokens, also written to the sequences' rows of last_token."""
        if self._record is not None:
            self._record.logits = logits.clone()
        wanted = self._sampling_of(batch)
        tokens = None if self.head is None else self.head.sample(logits, wanted)
        if tokens is None:
            tokens = pick_tokens(self.kernels, wanted.filtered(logits), wanted, self.last_token)
        return tokens

    def _sampling_of(self, batch: Batch) -> SamplingInputs:
        """What `prepare` uploaded for this batch; uploaded now if it has seen another since."""
        if self._wanted is not None and self._wanted[0] is batch:
            return self._wanted[1]
        return sampling_inputs(batch, self.model_config.vocab_size, self.device)

    @property
    def _stages_by_kernel(self) -> bool:
        return self.kernels is not None and self.device.type == "cuda"

    def _resolves_late(self, batch: Batch) -> bool:
        """Whether placeholders may stay: the kernel that fills a graph's buffers replaces them."""
        if batch.is_prefill or not self._stages_by_kernel:
            return False
        return cuda_graph.pick_bucket(len(batch.items), self.buckets) is not None

    def _resolve(self, ids: torch.Tensor) -> torch.Tensor:
        """A placeholder -(row + 1) becomes the row's newest token, here on the device."""
        if self.kernels is not None:
            return self.kernels.resolve_placeholders(ids, self.last_token)
        return torch.where(ids < 0, self.last_token[(-ids - 1).clamp(min=0)], ids)

    def _allocate_kv_cache(self) -> torch.Tensor:
        """Decide the pool's size, carve it, and bind every layer's part."""
        config, model = self.config, self.model_config
        itemsize = self.dtype.itemsize
        layers, heads, head_dim = model.num_hidden_layers, model.num_key_value_heads, model.head_dim
        size = kv_cache.block_bytes(
            layers, self.block_size, heads, head_dim, itemsize, self.group.size
        )
        blocks = config.num_kvcache_blocks
        if blocks is None and self.device.type == "cpu":
            fitting = kv_cache.num_kvcache_blocks(config.cpu_kvcache_bytes, 0, 0, 0, size, 1.0)
            longest = -(-self.max_model_len // self.block_size)
            blocks = min(fitting, self.max_num_seqs * longest)
        elif blocks is None:
            blocks = self._blocks_beside_activations(size)
        blocks = self.group.agree("KV blocks", blocks)
        heads = max(1, heads // self.group.size)
        cache = kv_cache.allocate_kv_cache(
            layers, blocks, self.block_size, heads, head_dim, self.dtype, self.device
        )
        kv_cache.bind_kv_cache(self.model, cache)
        return cache

    def _blocks_beside_activations(self, size: int) -> int:
        """Measure the activation peak of the largest prefill, then apply the formula."""
        return kv_cache.num_kvcache_blocks(
            *warm_up.gpu_memory(self.warm_up),
            size,
            self.config.gpu_memory_utilization,
            self.config.gpu_reserve_bytes,
        )

    def warm_up(self) -> None:
        """One prefill of the largest size, by sequences that own no blocks and write no cache."""
        largest = warm_up.largest_prefill(
            self.config.max_num_batched_tokens, self.max_model_len, self.max_num_seqs
        )
        self.run(largest).tolist()

    def _prepare_gpu(self) -> None:
        """Capture graphs, check what they took, and leave nothing to compile for a request."""
        torch.cuda.synchronize()
        free_before, _ = torch.cuda.mem_get_info()
        if self.config.use_graphs(self.device):
            self._capture_graphs()
        torch.cuda.empty_cache()  # activations have their own place beside the pool
        taken = free_before - torch.cuda.mem_get_info()[0]
        reserve = self.config.gpu_reserve_bytes
        if self.config.num_kvcache_blocks is None and taken > reserve:
            raise NotEnoughMemory(
                f"the graphs took {taken >> 20} MiB, but gpu_reserve_bytes keeps only "
                f"{reserve >> 20} MiB free beside the KV pool: raise it, or lower graph_max_batch"
            )
        warm_up.rehearse(
            self.run,
            self.config.max_num_batched_tokens,
            self.max_model_len,
            self.block_size,
            self.num_kvcache_blocks,
        )
        self._resolve(self.last_token[:1])  # decode batches beyond the largest graph need it
        torch.cuda.synchronize()

    @torch.inference_mode()
    def _capture_graphs(self) -> None:
        config = self.config
        if self.kernels is None and self.device.type == "cuda":
            if config.enforce_eager is None:
                return
            raise ConfigError(
                f"enforce_eager=False with attention_backend={self.choice.name!r} on a GPU: plain "
                "torch attention waits for the device and cannot be captured; use another backend"
            )
        self.buckets = cuda_graph.graph_buckets(
            self.max_num_seqs, config.graph_max_batch, config.graph_bucket_step
        )
        self.buffers = cuda_graph.GraphBuffers.allocate(
            self.buckets[-1],
            -(-self.max_model_len // self.block_size),
            self.model_config.hidden_size,
            self.dtype,
            self.device,
        )
        if self.group.size == 1:  # several ranks gather the logits and send the tokens around
            pick = partial(pick_tokens, self.kernels, last_token=self.last_token)
            self.head = head_graph.HeadGraphs(self.model, self.buffers, pick)
        self.graphs = cuda_graph.capture_all(
            self.model, self.buffers, self.buckets, self._new_graph
        )
        if self.group.size > 1:
            self.group.captured.append(self.graphs)
        if self.head is not None:
            self.head.capture_sampling()

    def _new_graph(self, bucket: int) -> cuda_graph.Graph:
        graph = cuda_graph.new_graph(self.buffers, bucket)
        return graph if self.head is None else self.head.extended(graph, bucket)
