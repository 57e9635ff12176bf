"""What PyTorch really ran, in the words that a label is held against (pure: no PyTorch is imported)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def gpu_precision(floating: Sequence[str], *, matmul_tf32: bool, convolution_tf32: bool) -> str:
    """Names of the parameters' types (sorted) and the two TF32 switches → the precision that ran.

    fp32 tensors ran in TF32 where both switches allow it, in fp32 where neither does; one alone is a mixture.
    """
    if list(floating) != ["fp32"] or not (matmul_tf32 or convolution_tf32):
        return "+".join(floating)
    return "tf32" if matmul_tf32 and convolution_tf32 else "fp32+tf32"


@dataclass(frozen=True)
class Compiled:
    """What torch.compile counted.

    graphs: graphs that Dynamo handed to Inductor. breaks: places where it left one for plain Python. skips: times that
    Inductor ran without the CUDA graph asked for. input_copies: inputs that a call copies into its CUDA graph.
    recorded: CUDA graphs recorded by now; None where none were asked for. recorded_before: the same before timing.
    """

    graphs: int
    breaks: int
    skips: int = 0
    input_copies: int = 0
    recorded: int | None = None
    recorded_before: int | None = None

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the row: the counts, and whether a call copies its inputs."""
        found: dict[str, str | int | float | bool] = {"graphs": self.graphs, "graph_breaks": self.breaks}
        if self.recorded is not None:
            found |= {
                "cuda_graphs": self.recorded,
                "cuda_graph_skips": self.skips,
                "cuda_graph_input_copies": self.input_copies,
            }
        return found

    def eager_parts(self) -> str | None:
        """Why this is not one compiled graph; None where it is.

        With static shapes one graph is compiled once: another one is a part after a break, or a recompilation, and
        after eight of those PyTorch runs eagerly (torch._dynamo.config.recompile_limit).
        """
        if not self.graphs:
            return "nothing was compiled (by default PyTorch compiles no RNN, GRU or LSTM)"
        found = [f"{self.breaks} graph breaks"] if self.breaks else []
        found += [f"{self.graphs} graphs compiled for one shape"] if self.graphs > 1 else []
        return " and ".join(found) or None

    def shortfalls(self) -> tuple[str, ...]:
        """Why the CUDA graph asked for did not serve every call; empty where it did, and where none was asked for."""
        if self.recorded is None:
            return ()
        if self.skips or not self.recorded:
            return ("its CUDA graph was skipped",)
        if self.recorded != self.recorded_before:
            return ("CUDA graphs were recorded while timing",)
        return ()


def compiled_of(
    counters: Mapping[str, Mapping[str, int]], recorded: int | None = None, recorded_before: int | None = None
) -> Compiled:
    """torch._dynamo.utils.counters in our words."""
    inductor = counters["inductor"]
    return Compiled(
        graphs=counters["stats"].get("unique_graphs", 0),
        breaks=sum(counters["graph_break"].values()),
        skips=inductor.get("cudagraph_skips", 0),
        input_copies=inductor.get("cudagraph_recorded_non_static_inputs", 0),
        recorded=recorded,
        recorded_before=recorded_before,
    )


def with_shortfalls(precision: str, shortfalls: Sequence[str]) -> str:
    """The precision alone where nothing was short of what was asked for; else a name that passes for no precision."""
    return f"{precision}, but {' and '.join(shortfalls)}," if shortfalls else precision
