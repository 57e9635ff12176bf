"""onnxruntime generates: one prefill or step is one run of the decoder file, which also chooses the tokens. The type
that its products ran in is from a profiled run and the file's operators, outside the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from harness.backends.base import Array
from harness.backends.decoder import Decoder, DecoderJob
from harness.backends.onnxruntime.cache_feeds import FEEDS, PAST, TYPES, BoundMemory, HostMemory, Sessions
from harness.backends.onnxruntime.placement import nodes_that_run
from harness.backends.onnxruntime.session import session_options
from harness.backends.precision import floating_precision, precision_of
from harness.core.errors import CaseError
from harness.core.schemas import Placement
from harness.zoo.quantised_files import BLOCKS, IN_INT8


class OnnxDecoder(Decoder):
    """On the CPU. The setting's option `feeds` is one of FEEDS."""

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        if job.onnx is None:
            raise CaseError(
                f"{job.model} has no ONNX file for generation in {job.precision}.", "Export it again: `make generate`."
            )
        self.file = job.folder / job.onnx
        self.feeds = str(job.options.get("feeds", "binding"))

    def load(self) -> None:
        """Create the sessions, the cache and every binding; nothing runs yet."""
        self._begin(HostMemory(), None)

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Run over the prompts."""
        self._feeds.prefill(ids)

    def step(self) -> None:
        """Run once."""
        self._feeds.step()

    def tokens(self) -> NDArray[np.int64]:
        """The tokens that the graph chose."""
        return self._feeds.tokens()

    def logits(self) -> NDArray[np.float32]:
        """Logits as fp32."""
        return self._feeds.logits().astype(np.float32)

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens."""
        self._feeds.force(ids)

    def cache_bytes(self) -> int:
        """Bytes of the buffers, or of the arrays."""
        return self._feeds.cache_bytes()

    def placement(self) -> Placement:
        """The session's providers, the types of its inputs and outputs, and for int8 the kernels that ran."""
        options = self._session.get_session_options()
        kernels: dict[str, int] = {}
        if self.job.precision == "int8":
            kernels = products(self.file, self.example(), options.intra_op_num_threads)
        types = {port.type: 1 for port in self._session.get_inputs() if port.name.startswith(PAST)}
        return Placement(
            device="cpu" if self._session.get_providers() == ["CPUExecutionProvider"] else "mixed",
            precision=precision_of(kernels) if kernels else floating_precision(types),
            provider="+".join(self._session.get_providers()),
            settings={
                "threads": options.intra_op_num_threads,
                "interop_threads": options.inter_op_num_threads,
                "feeds": self.feeds,
                "file": self.file.name,
                **{f"{precision}_kernels": number for precision, number in sorted(kernels.items())},
            },
            dtype_census=kernels,
        )

    def build_facts(self) -> dict[str, str]:
        """ONNX Runtime's own build line."""
        return {"onnxruntime": ort.get_build_info()}

    def close(self) -> None:
        """Bindings first: they hold memory of the sessions."""
        for name in ("_feeds", "_session", "_first"):
            vars(self).pop(name, None)

    def example(self) -> dict[str, Array]:
        """Inputs of one token for a run beside the measured ones, with an empty cache on the host."""
        job, feeds = self.job, {}
        for port in self._session.get_inputs():
            kind = np.dtype(TYPES[port.type])
            positions = job.capacity if self.feeds == "in-place" else 1 if port.name.startswith("cross.") else 0
            shape: tuple[int, ...] = (job.batch_size, job.shape.kv_heads, positions, job.shape.head_dim)
            if "." not in port.name:
                shape = () if port.name == "total_sequence_length" else (job.batch_size, 1)[: len(port.shape)]
            feeds[port.name] = np.full(shape, int(port.name == "total_sequence_length"), kind)
        return feeds

    def _begin(self, memory: BoundMemory, options: Any) -> None:
        """Open the sessions and make the way. options: RunOptions."""
        self._session = self._open(self.file)
        self._first = self._open(self.prefill_file) if self.job.shape.kind == "seq2seq" else None
        self._feeds = FEEDS[self.feeds](Sessions(self._session, self._first, options), self.job, memory)

    @property
    def prefill_file(self) -> Path:
        """The file of a seq2seq model's encoder and first step."""
        return self.file.with_name(f"decoder-{self.job.precision}-prefill.onnx")

    def _open(self, file: Path) -> Any:
        return ort.InferenceSession(str(file), self._options(file), providers=["CPUExecutionProvider"])

    def _options(self, _file: Path) -> Any:
        return session_options(self.job.threads)


_PLAIN = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")


def products(file: Path, feeds: Mapping[str, Array], threads: int) -> dict[str, int]:
    """Number of products with weights by precision."""
    graph = onnx.load(file, load_external_data=False).graph
    return count_products([node.operator for node in nodes_that_run(file, feeds, threads)], graph.node)


def count_products(ran: Iterable[str], nodes: Iterable[Any]) -> dict[str, int]:
    """ran: operators of the kernels that ran; nodes: of the file, which name the bits of their weights (pure).

    `int8` are weights of 8 bits that are multiplied in int8; other weights in blocks are named by bits and type.
    """
    kinds = {_kind(node) for node in nodes if node.op_type == BLOCKS}
    counter = Counter(operator for operator in ran if operator in (BLOCKS, *_PLAIN))
    blocks, plain = counter.pop(BLOCKS, 0), sum(counter.values())
    counted = {"+".join(sorted(kinds)) or "unknown": blocks, "fp32": plain}
    return {name: number for name, number in counted.items() if number}


def _kind(node: Any) -> str:
    given = {entry.name: entry.i for entry in node.attribute}
    bits = given.get("bits", 4)
    if given.get("accuracy_level") != IN_INT8:
        return f"{bits}-bit weights multiplied in floating point"
    return "int8" if bits == 8 else f"{bits}-bit weights multiplied in int8"
