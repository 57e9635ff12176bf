"""onnx-reference: one infer() is one pass of ONNX's own evaluator over the graph."""

from __future__ import annotations

import math
from collections import Counter

from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from harness.backends.base import Array, Backend, Batch
from harness.backends.precision import floating_precision
from harness.core.schemas import Placement


class OnnxReference(Backend):
    """NumPy works on the batches where they lie: nothing is copied in, and outputs() copies them out."""

    def load(self) -> None:
        """Read the fp32 file."""
        self._evaluator = ReferenceEvaluator(str(self.job.folder / self.job.export.onnx["fp32"].path))
        self._feed: Batch = self.job.batches[0]
        self._results: list[Array] = []

    def select(self, index: int) -> None:
        """Point the next pass at a batch."""
        self._feed = self.job.batches[index]

    def feed(self, batch: Batch) -> None:
        """Point the next pass at arrays where they lie."""
        self._feed = batch

    def infer(self) -> None:
        """Evaluate every node."""
        self._results = self._evaluator.run(None, self._feed)

    def outputs(self) -> dict[str, Array]:
        """Copies of the last results, by the export's names."""
        specs = self.job.export.outputs
        return {spec.name: result.copy() for spec, result in zip(specs, self._results, strict=True)}

    def placement(self) -> Placement:
        """Element types of the graph's own weights: NumPy computes in the types of its operands."""
        census: Counter[str] = Counter()
        for tensor in self._evaluator.proto_.graph.initializer:
            census[TensorProto.DataType.Name(tensor.data_type).lower()] += math.prod(tensor.dims)
        return Placement(
            device="cpu",
            precision=floating_precision(census),
            provider="onnx.reference, NumPy",
            settings={"nodes": len(self._evaluator.rt_nodes_)},
            dtype_census=dict(census),
        )
