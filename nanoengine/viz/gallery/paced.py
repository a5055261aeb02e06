"""The engine's real step loop with a clock of its own: each step costs what it cost on a GPU.

The order of launches and reads is the engine's; the lengths are recorded ones. So the picture of
the overlap is a simulation, and says so.
"""

from typing import Any

from nanoengine.engine.record import StepRecord
from nanoengine.engine.sequence import Batch
from nanoengine.viz.gallery.recorded import recorded
from nanoengine.viz.gallery.runs import engine, greedy
from nanoengine.viz.overlap import TimedStep

STEPS = 4
PROFILE = "nano_vllm_decode_profile_h200.json"


class PacedRunner:
    """A runner that computes as the one it wraps, and tells the time of every decode step.

    host_ms: what scheduling, preparing and launching a step takes. device_ms: what running it does.
    """

    def __init__(self, runner: Any, host_ms: float, device_ms: float) -> None:
        self._runner, self._host_ms, self._device_ms = runner, host_ms, device_ms
        self._now = self._device_free = 0.0
        self.steps: list[TimedStep] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, batch: Batch, record: StepRecord | None = None) -> Any:
        """Run the batch; the clock goes on by the host's time, and the device has a new step."""
        tokens = self._runner.run(batch, record)
        if batch.is_prefill:  # the clock starts with the first decode step
            return tokens
        begin = self._now
        self._now += self._host_ms
        start = max(self._now, self._device_free)
        self._device_free = start + self._device_ms
        return _PacedTokens(self, tokens, (begin, self._now, start, self._device_free))

    def read(self, times: tuple[float, float, float, float]) -> None:
        """The host waits until the device has finished a step."""
        self._now = max(self._now, times[-1])
        self.steps.append(TimedStep(*times, read=self._now))


class _PacedTokens:
    """Tokens of one step; reading them takes the host to the step's end."""

    def __init__(
        self, runner: PacedRunner, tokens: Any, times: tuple[float, float, float, float]
    ) -> None:
        self._runner, self._tokens, self._times = runner, tokens, times

    def tolist(self) -> list[int]:
        self._runner.read(self._times)
        values: list[int] = self._tokens.tolist()
        return values


def paced_steps(overlap: bool, host_ms: float, device_ms: float) -> list[TimedStep]:
    """STEPS decode steps of the engine, in the order in which their tokens were read."""
    with engine(overlap=overlap) as llm:
        paced = PacedRunner(llm.engine.runner, host_ms, device_ms)
        llm.engine.runner = paced  # type: ignore[assignment]
        llm.generate([[1, 2, 3]], greedy(STEPS + 1), use_tqdm=False)
    return paced.steps


def overlap() -> dict[str, Any]:
    """What `overlap_timeline` draws: host and device times of nano-vllm's decode step."""
    profile = recorded(PROFILE)
    peer = profile["nano-vllm"]
    device = peer["gpu_busy_ms"] / peer["steps_profiled"]
    host = peer["step_ms_unprofiled"] - device
    source = (
        f"Simulated: this engine's loop; a step takes the host {host:.2f} ms and the device "
        f"{device:.2f} ms, as nano-vllm's did on an\n{profile['device']['name']} "
        f"({peer['model']}, {peer['batch']} sequences, prompts of {peer['prompt_tokens']} tokens)."
    )
    plain, overlapped = (paced_steps(flag, host, device) for flag in (False, True))
    return {"plain": plain, "overlapped": overlapped, "source": source}
