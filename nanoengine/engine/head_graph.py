"""The end of a decode step as graphs, too: a steady step is one upload, a kernel and two replays.

The graph of the model's body goes on to the logits, and sampling is a second, small graph. The
five steps of `ModelRunner.run` keep their meaning: step 3 finds the logits that step 2's replay
has made, step 4 replays the sampling. Whatever a graph cannot know beforehand (filters, banned
tokens) works on the same logits, one operation at a time.

On a GPU the host needs some 20 to 40 microseconds for each kernel that it launches itself, and a
step of one sequence lasts some 500: there the four launches behind the body were what it waited
for. With many sequences the GPU is busy for long enough, so larger batches have no such graphs.
"""

from collections.abc import Callable
from typing import cast
from weakref import proxy

import torch

from nanoengine.engine.cuda_graph import CudaGraph, Graph, GraphBuffers
from nanoengine.engine.sampling import SamplingInputs
from nanoengine.engine.sampling_graph import SamplingBuffers, SamplingDouble, Tensors
from nanoengine.models.qwen3 import Qwen3ForCausalLM

# Larger buckets end with the body. Each smaller one keeps its logits for good: with the 151,936
# tokens of Qwen3 in bfloat16 the eight of them take 51 MiB.
LARGEST = 64

PICK = Callable[[torch.Tensor, SamplingInputs], torch.Tensor]


def kept(before: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Where a graph leaves a result that outlives it: the same address at every replay.

    A real graph records `result`'s own memory, which is its own for as long as the tensor lives.
    The double computes anew, and copies to where it left the result `before`.
    """
    return result if result.is_cuda else before.copy_(result)


class HeadGraphs:
    """Logits and tokens of decode steps that are replayed, for each bucket up to LARGEST.

    logits: {bucket: [bucket, vocab_size]}, as the newest replay of that bucket left them.
    """

    def __init__(self, model: Qwen3ForCausalLM, buffers: GraphBuffers, pick: PICK) -> None:
        """pick: tokens of logits, also written to where the next step finds them."""
        self._buffers, self._pick, self._head = buffers, pick, model.lm_head
        count, device = buffers.hidden_states.shape[0], buffers.hidden_states.device
        self.sampling = SamplingBuffers.allocate(count, device)
        self.logits: dict[int, torch.Tensor] = {}
        self._graphs: dict[int, Graph] = {}
        self._tokens: dict[int, torch.Tensor] = {}
        self.newest: int | None = None  # the bucket that was replayed last, if its logits are kept
        self._staged: SamplingInputs | None = None
        _find_logits_first(model, self)

    def extended(self, graph: Graph, bucket: int) -> "StepGraph":
        """A graph for `capture_all` that goes on to the logits where the body ends."""
        return StepGraph(graph, self, bucket)

    def compute_logits(self, bucket: int) -> torch.Tensor:
        """[bucket, vocab_size] of what lies in hidden_states."""
        logits: torch.Tensor = self._head(self._buffers.hidden_states[:bucket])
        return logits

    def capture_sampling(self) -> None:
        """Capture the sampling of every bucket whose logits are kept, the largest first."""
        pool: object = None
        logits, tokens, pick = self.logits, self._tokens, self._pick
        for bucket in sorted(logits, reverse=True):
            wanted = self.sampling.inputs(bucket)

            def body(bucket: int = bucket, wanted: SamplingInputs = wanted) -> None:
                tokens[bucket] = kept(tokens[bucket], pick(logits[bucket], wanted))

            tokens[bucket] = pick(logits[bucket], wanted)  # compiles and allocates outside
            graph: Graph
            if logits[bucket].is_cuda:
                graph = CudaGraph()
            else:
                graph = SamplingDouble(self.sampling, tokens, logits[bucket], bucket)
            graph.capture(body, pool)
            pool = graph.pool() if pool is None else pool
            self._graphs[bucket] = graph

    def staging(
        self, wanted: SamplingInputs | None, batch: int, bucket: int
    ) -> tuple[Tensors, Tensors]:
        """What to copy for this step, and where: temperatures, noise, rows.

        Without inputs for just this batch the buffers stay as they are (copied to themselves), and
        step 4 replays nothing.
        """
        fits = bucket <= LARGEST and wanted is not None and len(wanted.rows) == batch
        self._staged = wanted if fits else None
        if wanted is None or not fits:
            return self.sampling.tensors, self.sampling.tensors
        return (wanted.temperatures, wanted.noise, wanted.rows), self.sampling.tensors

    def logits_of(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """The logits of the newest replay, if `hidden_states` are its rows; otherwise None."""
        if self.newest is None:
            return None
        if hidden_states.data_ptr() != self._buffers.hidden_states.data_ptr():
            return None
        logits = self.logits[self.newest]
        return logits[: len(hidden_states)] if len(hidden_states) <= len(logits) else None

    def sample(self, logits: torch.Tensor, wanted: SamplingInputs) -> torch.Tensor | None:
        """[b] tokens by a replay; None where it must be done one operation at a time.

        A replay needs that `wanted` was staged for the newest step and `logits` are that step's.
        On a GPU the next replay writes over the tokens: SampledTokens has copied them before.
        """
        staged, self._staged = self._staged, None
        if self.newest is None or staged is not wanted or not wanted.plain:
            return None
        own = self.logits[self.newest][: len(wanted.rows)]
        if logits.data_ptr() != own.data_ptr() or logits.shape != own.shape:
            return None
        self._graphs[self.newest].replay()
        tokens = self._tokens[self.newest][: len(logits)]
        return tokens if tokens.is_cuda else tokens.clone()  # on a CPU SampledTokens copies nothing


def _find_logits_first(model: Qwen3ForCausalLM, head: HeadGraphs) -> None:
    """Let the model's compute_logits ask `head` before it computes."""
    alive = proxy(model)  # the model must not keep itself: its memory is to be free without it

    def compute_logits(hidden_states: torch.Tensor) -> torch.Tensor:
        logits = head.logits_of(hidden_states)
        if logits is None:
            logits = Qwen3ForCausalLM.compute_logits(cast(Qwen3ForCausalLM, alive), hidden_states)
        return logits

    model.compute_logits = compute_logits  # type: ignore[method-assign]


class StepGraph:
    """A graph of one bucket, real or double, that goes on to the logits."""

    def __init__(self, graph: Graph, head: HeadGraphs, bucket: int) -> None:
        self._graph, self._head, self._bucket = graph, head, bucket

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Record the body and, in a bucket that keeps its logits, the head behind it."""
        head, bucket = self._head, self._bucket

        def to_the_logits() -> None:
            body()
            head.logits[bucket] = kept(head.logits[bucket], head.compute_logits(bucket))

        if bucket > LARGEST:
            self._graph.capture(body, pool)
            return
        head.logits[bucket] = head.compute_logits(bucket)  # compiles and allocates outside
        self._graph.capture(to_the_logits, pool)

    def replay(self) -> None:
        """As the graph's own; its logits are the newest now."""
        self._graph.replay()
        self._head.newest = self._bucket if self._bucket <= LARGEST else None

    def pool(self) -> object:
        """As the graph's own."""
        return self._graph.pool()
