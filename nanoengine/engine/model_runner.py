"""One execution of the model: from the sequences that the scheduler picked to sampled tokens."""

from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch

from nanoengine import context as context_module
from nanoengine.attention.base import choose_backend
from nanoengine.config import EngineConfig
from nanoengine.context import Context, get_context
from nanoengine.engine import cuda_graph, inputs, kv_cache
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens, sampling_inputs
from nanoengine.engine.sequence import Batch, Sequence, whole_prompt
from nanoengine.layers import sampler
from nanoengine.models.config import ModelConfig
from nanoengine.models.qwen3 import Qwen3ForCausalLM
from nanoengine.sampling_params import SamplingParams
from nanoengine.weights import build_model, load_weights

PreparedRun = tuple[torch.Tensor, torch.Tensor, Context]


class ModelRunner:
    """The model, its KV cache and its graphs on one device."""

    def __init__(self, config: EngineConfig, model_config: ModelConfig, folder: Path) -> None:
        self.config, self.model_config = config, model_config
        self.device = config.resolve_device()
        self.dtype = config.resolve_dtype(model_config.dtype, self.device)
        self.block_size = config.block_size(self.device)
        self.max_model_len = config.max_model_len or model_config.max_position_embeddings
        self.max_num_seqs = min(config.max_num_seqs, config.max_num_batched_tokens)
        self.choice = choose_backend(config.attention_backend, self.device)
        self.model: Qwen3ForCausalLM = build_model(
            Qwen3ForCausalLM,
            self.dtype,
            self.device,
            model_config,
            self.choice.backend,
            self.max_model_len,
        )
        load_weights(self.model, folder)
        # row -> the sequence's newest token; the next step reads it here before the host knows it
        self.last_token = torch.zeros(self.max_num_seqs, dtype=torch.int64, device=self.device)
        self.kv_cache = self._allocate_kv_cache()
        self.buckets: list[int] = []
        if config.use_graphs(self.device):
            self._capture_graphs()
        self._record: StepRecord | None = None

    @property
    def num_kvcache_blocks(self) -> int:
        """Blocks in the KV pool."""
        return self.kv_cache.shape[2]

    @torch.inference_mode()
    def run(self, batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        """Run the model once over a batch and sample a token for each of its sequences.

        The tokens stay on the device; whoever needs the numbers asks the returned handle.
        """
        self._record = record
        input_ids, positions, context = self.prepare(batch)  # 1: tensors, and the context
        with context_module.use_context(context):  # 5: reset at the end, also after an exception
            hidden_states = self.run_model(input_ids, positions)  # 2: eager, or a graph's replay
            logits = self.model.compute_logits(hidden_states)  # 3
            tokens = self.sample(logits, batch)  # 4: on rank 0 only
        return SampledTokens(tokens)

    def prepare(self, batch: Batch) -> PreparedRun:
        """The batch's integer lists as tensors: input_ids, positions and the context."""
        lists: inputs.PrefillInputs | inputs.DecodeInputs
        if batch.is_prefill:
            lists = inputs.prepare_prefill(batch.seqs, self.block_size)
            context = self._prefill_context(lists)
        else:
            lists = inputs.prepare_decode(batch.seqs, self.block_size)
            context = self._decode_context(lists)
        if self._record is not None:
            self._record.inputs, self._record.context = lists, context
        return self._token_ids(lists.input_ids), self._int64(lists.positions), context

    def _prefill_context(self, lists: inputs.PrefillInputs) -> Context:
        tables = lists.block_tables
        return Context(
            is_prefill=True,
            slot_mapping=self._int32(lists.slot_mapping),
            cu_seqlens_q=self._int32(lists.cu_seqlens_q),
            cu_seqlens_k=self._int32(lists.cu_seqlens_k),
            max_seqlen_q=lists.max_seqlen_q,
            max_seqlen_k=lists.max_seqlen_k,
            block_tables=None if tables is None else self._int32(tables),
        )

    def _decode_context(self, lists: inputs.DecodeInputs) -> Context:
        return Context(
            is_prefill=False,
            slot_mapping=self._int32(lists.slot_mapping),
            context_lens=self._int32(lists.context_lens),
            block_tables=self._int32(lists.block_tables),
        )

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
        cuda_graph.stage_inputs(self.buffers, input_ids, positions, context, bucket)
        self.graphs[bucket].replay()
        return self.buffers.hidden_states[: len(input_ids)]

    def sample(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """[b, vocab] logits -> [b] tokens, also written to the sequences' rows of last_token."""
        if self._record is not None:
            self._record.logits = logits.clone()
        wanted = sampling_inputs(batch, self.model_config.vocab_size, self.device)
        tokens = sampler.sample(wanted.filtered(logits), wanted.temperatures, wanted.noise)
        self.last_token[self._int64([seq.row for seq in batch.seqs])] = tokens
        return tokens

    def _token_ids(self, token_ids: list[int]) -> torch.Tensor:
        """Token ids on the device; a placeholder -(row + 1) becomes the row's newest token."""
        ids = self._int64(token_ids)
        if min(token_ids) >= 0:
            return ids
        return torch.where(ids < 0, self.last_token[(-ids - 1).clamp(min=0)], ids)

    def _int32(self, values: SequenceOf[int] | list[list[int]]) -> torch.Tensor:
        return self._to_device(torch.tensor(values, dtype=torch.int32))

    def _int64(self, values: SequenceOf[int]) -> torch.Tensor:
        return self._to_device(torch.tensor(values, dtype=torch.int64))

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy without waiting: fresh pinned memory a step, since the last one may be in use."""
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def _allocate_kv_cache(self) -> torch.Tensor:
        """Decide the pool's size, carve it, and bind every layer's part."""
        config, model = self.config, self.model_config
        itemsize = self.dtype.itemsize
        size = kv_cache.block_bytes(
            model.num_hidden_layers,
            self.block_size,
            model.num_key_value_heads,
            model.head_dim,
            itemsize,
        )
        blocks = config.num_kvcache_blocks
        if blocks is None and self.device.type == "cpu":
            fitting = kv_cache.num_kvcache_blocks(config.cpu_kvcache_bytes, 0, 0, 0, size, 1.0)
            longest = -(-self.max_model_len // self.block_size)
            blocks = min(fitting, self.max_num_seqs * longest)
        elif blocks is None:
            blocks = self._blocks_beside_activations(size)
        cache = kv_cache.allocate_kv_cache(
            model.num_hidden_layers,
            blocks,
            self.block_size,
            model.num_key_value_heads,
            model.head_dim,
            self.dtype,
            self.device,
        )
        kv_cache.bind_kv_cache(self.model, cache)
        return cache

    def _blocks_beside_activations(self, size: int) -> int:
        """Measure the activation peak of the largest prefill, then apply the formula."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.warm_up()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        return kv_cache.num_kvcache_blocks(
            total,
            total - free,
            stats["allocated_bytes.all.peak"],
            stats["allocated_bytes.all.current"],
            size,
            self.config.gpu_memory_utilization,
            self.config.gpu_reserve_bytes,
        )

    def warm_up(self) -> None:
        """One prefill of the largest size, by sequences that own no blocks and write no cache."""
        budget = self.config.max_num_batched_tokens
        length = min(budget, self.max_model_len)
        count = max(1, min(budget // length, self.max_num_seqs))
        seqs = [
            Sequence(f"warm-up {i}", [0] * length, SamplingParams(), length) for i in range(count)
        ]
        self.run(Batch([whole_prompt(seq) for seq in seqs], is_prefill=True)).tolist()

    @torch.inference_mode()
    def _capture_graphs(self) -> None:
        config = self.config
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
        self.graphs = cuda_graph.capture_all(
            self.model, self.buffers, self.buckets, self._new_graph
        )

    def _new_graph(self, bucket: int) -> cuda_graph.Graph:
        if self.device.type == "cuda":
            return cuda_graph.CudaGraph()
        return cuda_graph.GraphDouble(self.buffers, bucket)
