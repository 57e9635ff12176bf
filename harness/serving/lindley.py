"""The queue of one worker without batching, by Lindley's recursion (pure).

D. V. Lindley, The theory of queues with a single server, Mathematical Proceedings of the Cambridge Philosophical
Society 48(2), 1952: the next request waits max(0, W + S - A).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def completions(scheduled: NDArray[np.int64], service_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Completion of each request, in the unit and shape of both arguments; queues run along the last axis.

    C_i = max(A_i, C_(i-1)) + S_i, written as a running maximum of integers, so it is exact.
    """
    served = np.cumsum(service_ns, axis=-1)
    return served + np.maximum.accumulate(scheduled - (served - service_ns), axis=-1)


def waits(scheduled: NDArray[np.int64], service_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time of each request in the queue: its completion without its own service and its arrival."""
    return completions(scheduled, service_ns) - service_ns - scheduled
