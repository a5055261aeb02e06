"""Programmatic dependent launch: a kernel's programs start while the kernel before still runs.

Launching a kernel behind another costs about a microsecond in which the chip is idle; a decode
step of a small model has 250 of them. With `launch_pdl=True` the programs of the next kernel move
in as soon as there is room and may fetch what does not depend on the kernel before (weights,
lengths, block tables). Two rules keep that right:

1. Above `wait` read only what no kernel of this step has written: kernels further back may still
   be running.
2. Every program of every kernel waits, also one that has nothing to do: so the end of one kernel
   means the end of all before it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_next(PDL: tl.constexpr):
    """Let the next kernel's programs start as soon as there is room for them."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait(PDL: tl.constexpr):
    """Wait until the kernel before has ended and what it wrote can be read."""
    if PDL:
        gdc_wait()


def launch_options(pdl: bool) -> dict[str, Any]:
    """Keyword arguments for a launch: the kernel's PDL constant, and the launch attribute."""
    return {"PDL": True, "launch_pdl": True} if pdl else {"PDL": False}
