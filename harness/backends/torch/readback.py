"""The precision that PyTorch really ran, in the words of a case's label (pure: no PyTorch is imported)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


def gpu_precision(floating: Sequence[str], *, matmul_tf32: bool, convolution_tf32: bool) -> str:
    """Names of the parameters' types (sorted) and the two TF32 switches → the precision that ran.

    fp32 tensors ran in TF32 where both switches allow it, in fp32 where neither does; one switch alone gives a mixture.
    """
    if list(floating) != ["fp32"] or not (matmul_tf32 or convolution_tf32):
        return "+".join(floating)
    return "tf32" if matmul_tf32 and convolution_tf32 else "fp32+tf32"


class Product(NamedTuple):
    """A kind of products: the word for their precision, and whether they multiply two results instead of weights."""

    word: str
    of_activations: bool


def precision_words(shares: Mapping[Product, float], least: float) -> tuple[str, ...]:
    """Words for the precisions of at least this share of the products, sorted."""
    by_word: dict[str, float] = {}
    for kind, share in shares.items():
        by_word[kind.word] = by_word.get(kind.word, 0.0) + share
    return tuple(sorted(word for word, share in by_word.items() if share >= least))


def fp8_ran(
    shares: Mapping[Product, float], held: str, least: float
) -> tuple[tuple[str, ...], dict[str, str | int | float | bool]]:
    """Words for the precision of a module with fp8 layers, and for the row the share of all products that fp8 has.

    `fp8` alone where less than `least` of the products with weights ran in anything else: products of two results, as
    in an attention, are in bf16 by design. `held`, the types of its parameters, where no product was seen.
    """
    if not shares:
        return (held,), {}
    weighted = {kind: share for kind, share in shares.items() if not kind.of_activations}
    words = precision_words(weighted, least) or precision_words(shares, least)
    fp8_share = sum(share for kind, share in shares.items() if kind.word == "fp8")
    return words, {"fp8_share_of_products": round(fp8_share, 4)}


@dataclass(frozen=True)
class Compiled:
    """The counts of torch.compile.

    graphs: graphs that Dynamo handed to Inductor. breaks: places where it left a graph for plain Python. skips: times
    Inductor ran without the requested CUDA graph. input_copies: inputs that a call copies into its CUDA graph.
    recorded: CUDA graphs recorded by now; None where none were requested. recorded_before: the same before timing.
    """

    graphs: int
    breaks: int
    skips: int = 0
    input_copies: int = 0
    recorded: int | None = None
    recorded_before: int | None = None

    def settings(self) -> dict[str, str | int | float | bool]:
        """Settings of the row: the counts, and whether a call copies its inputs."""
        counts: dict[str, str | int | float | bool] = {"graphs": self.graphs, "graph_breaks": self.breaks}
        if self.recorded is not None:
            counts |= {
                "cuda_graphs": self.recorded,
                "cuda_graph_skips": self.skips,
                "cuda_graph_input_copies": self.input_copies,
            }
        return counts

    def eager_parts(self) -> str | None:
        """Why this is not one compiled graph; None where it is.

        With static shapes one graph is compiled once: a second graph is a part after a break, or a recompilation, and
        after eight recompilations PyTorch runs eagerly (torch._dynamo.config.recompile_limit).
        """
        if not self.graphs:
            return "nothing was compiled (by default PyTorch compiles no RNN, GRU or LSTM)"
        parts = [f"{self.breaks} graph breaks"] if self.breaks else []
        parts += [f"{self.graphs} graphs compiled for one shape"] if self.graphs > 1 else []
        return " and ".join(parts) or None

    def shortfalls(self) -> tuple[str, ...]:
        """Why the requested CUDA graph did not serve every call; empty where it did, and where none was requested."""
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
    """The precision alone where everything ran as requested; else a name that is never taken for a precision."""
    return f"{precision}, but {' and '.join(shortfalls)}," if shortfalls else precision
