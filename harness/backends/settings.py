"""Named ways to run a backend (docs/decisions/0010-settings.md). The first of each table is its default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.core.schemas import Kind, Precision


@dataclass(frozen=True)
class Setting:
    """A named way to run a backend; the name appears in every row that was measured with it.

    options: options for the backend's class (base.Job.options).
    variant: which form of the ONNX file it loads (ExportRecord.onnx_variants); None: the plain file.
    kinds: models that it makes a difference for. precisions: the same of precisions; None: all.
    tried: whether `tune: true` measures it beside the others.
    threads: how many the backend gets; None: as many as the plan gives every backend.
    own_core: whether the thread that launches gets a CPU of its own (harness/processes/own_core.py).
    one_pass: on a GPU, why passes of two objects of one thread cannot be in flight together; None where they can.
    """

    summary: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    variant: str | None = None
    kinds: tuple[Kind, ...] = ("image", "text", "tensor")
    precisions: tuple[Precision, ...] | None = None
    tried: bool = True
    threads: int | None = None
    own_core: bool = False
    one_pass: str | None = None

    def all_options(self) -> Mapping[str, str | int | bool]:
        """All its options for the backend's class."""
        return self.options if self.variant is None else {**self.options, "variant": self.variant}


PLAIN: Mapping[str, Setting] = {"default": Setting("as the library comes")}

_THREADS = re.compile(r"1-thread|(?!1-)[1-9]\d{0,3}-threads")


def of_threads(name: str) -> Setting | None:
    """The setting of a name `1-thread`, `2-threads`, …, which every backend has on a CPU; None for other names."""
    if not _THREADS.fullmatch(name):
        return None
    return Setting("so many threads", tried=False, threads=int(name.partition("-")[0]))


_GRAPH = Setting("one CUDA graph for each input batch, so that no input is copied", {"graph": True}, tried=False)

EAGER_CUDA = {
    "default": Setting("convolutions in channels_last"),
    "nchw": Setting(
        "convolutions as the weights lie", {"channels_last": False}, kinds=("image", "tensor"), tried=False
    ),
    "graph": _GRAPH,
    "own-core": Setting("as default, the launching thread on a CPU of its own", tried=False, own_core=True),
}
SCRIPT_CUDA = {"default": Setting("convolutions in channels_last"), "graph": _GRAPH}
_FROZEN = "weights as constants of the compiled code (Inductor's freezing)"

COMPILE_CPU = {
    "default": Setting("as torch.compile comes"),
    "freezing": Setting(_FROZEN, {"freezing": True}),
}
_ONE_POOL = "all CUDA graphs that torch.compile records on a thread use the same memory; `default+graph` has its own"

COMPILE_CUDA = {
    "reduce-overhead": Setting("CUDA graphs", {"mode": "reduce-overhead"}, one_pass=_ONE_POOL),
    "reduce-overhead+freezing": Setting(
        f"CUDA graphs, {_FROZEN}", {"mode": "reduce-overhead", "freezing": True}, one_pass=_ONE_POOL
    ),
    "default": Setting("as torch.compile comes", {"mode": "default"}, tried=False),
    "default+graph": Setting(_GRAPH.summary, {"mode": "default", "graph": True}, tried=False),
    "freezing+graph": Setting(
        f"{_GRAPH.summary}; {_FROZEN}", {"mode": "default", "graph": True, "freezing": True}, tried=False
    ),
    "reduce-overhead+own-core": Setting(
        "as reduce-overhead, the launching thread on a CPU of its own",
        {"mode": "reduce-overhead"},
        tried=False,
        own_core=True,
        one_pass=_ONE_POOL,
    ),
    "max-autotune": Setting(
        "every template tried; compiles for minutes", {"mode": "max-autotune"}, tried=False, one_pass=_ONE_POOL
    ),
}
AOTI_CUDA = {
    "graph": _GRAPH,
    "default": Setting("kernels launched one by one", tried=False),
}
ORT_CUDA = {
    "graph": Setting("CUDA graph", {"graph": True}),
    "plain": Setting("kernels launched one by one", tried=False),
    "nhwc+graph": Setting(
        # In the export at opset 20 a node of the last pooling stays on the CPU then, and no graph can hold it.
        "convolutions in NHWC, CUDA graph, from the export at opset 17",
        {"graph": True, "nhwc": True},
        variant="opset17",
        kinds=("image", "tensor"),
    ),
    "nhwc+tf32+graph": Setting(
        "as nhwc+graph with use_tf32, ONNX Runtime's default, which decides about Tensor Core kernels of fp16 too",
        {"graph": True, "nhwc": True, "tf32": True},
        variant="opset17",
        kinds=("image", "tensor"),
        precisions=("fp16",),
        tried=False,
    ),
    "nhwc+tf32+bias+graph": Setting(
        "as nhwc+tf32+graph with fuse_conv_bias: convolution and bias in one kernel of cuDNN",
        {"graph": True, "nhwc": True, "tf32": True, "fuse_conv_bias": True},
        variant="opset17",
        kinds=("image", "tensor"),
        precisions=("fp16",),
    ),
    "nhwc+tf32+bias+padded+graph": Setting(
        "as nhwc+tf32+bias+graph, the channels of the first convolution padded with zeros to eight",
        {"graph": True, "nhwc": True, "tf32": True, "fuse_conv_bias": True},
        variant="padded",
        kinds=("image",),
        precisions=("fp16",),
        tried=False,
    ),
    "fused+graph": Setting(
        "attention and normalisations as ONNX Runtime's own operators, CUDA graph",
        {"graph": True},
        variant="fused",
        kinds=("text",),
    ),
    "fused+packed": Setting(
        "as fused, without the tokens of padding (packing mode); their number is read on the host, so no CUDA graph",
        variant="packed",
        kinds=("text",),
        tried=False,
    ),
}
CUDNN = {
    "graph": Setting(_GRAPH.summary, {"graph": True}),
    "folded+graph": Setting(
        "2 × 2 pixels of the input as one with four times the channels, laid out on the host; CUDA graph",
        {"graph": True, "folded": True},
        kinds=("image", "tensor"),
    ),
    "plain": Setting("kernels launched one by one", tried=False),
}
TENSORRT = {
    "static+graph": Setting("an engine for exactly this batch, CUDA graph", {"profiles": "static", "graph": True}),
    "dynamic+graph": Setting(
        "one engine for all batches of the plan, CUDA graph", {"profiles": "dynamic", "graph": True}
    ),
    "static": Setting("an engine for exactly this batch, no graph", {"profiles": "static"}, tried=False),
    "static+graph+fp16io": Setting(
        "static+graph with inputs and outputs in fp16",
        {"profiles": "static", "graph": True, "fp16_io": True},
        kinds=("image", "tensor"),
    ),
}

DECODE_COMPILED_CUDA = {
    "reduce-overhead": Setting("the decode step in torch.compile's CUDA graph", {"mode": "reduce-overhead"}),
    "graph": Setting("the compiled decode step in a CUDA graph of our own, without guards", {"graph": True}),
}

DECODE_ORT = {
    "in-place": Setting(
        "GroupQueryAttention writes into one buffer of keys and values", {"feeds": "in-place"}, variant="in-place"
    ),
    "binding": Setting("IO binding between two sets of buffers in turn", {"feeds": "binding"}),
    "numpy": Setting("run() with NumPy arrays, the cache among them", {"feeds": "numpy"}),
}
DECODE_STATES = {"states": Setting("keys and values as states of the request")}
