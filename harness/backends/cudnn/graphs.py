"""A convolution with what it is fused with, as a graph of cuDNN's frontend, and the plans that cuDNN has for it.

Source: cuDNN frontend, Python API (pygraph: conv_fprop, add, relu, create_execution_plans, build_plan_at_index,
execute_plan_at_index) and cuDNN's support matrix for runtime fusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cudnn

from harness.backends.cudnn.layer_plan import Activation, Convolution, Extents, LayerPlan

SOURCE, WEIGHT, BIAS, RESIDUAL, RESULT = 1, 2, 3, 4, 5
"""Unique ids of a graph's tensors."""

FORMS = ("precompiled", "generated")
"""The two families of kernels. With a bias in fp16, the graph is the fixed pattern convolution + addition + bias +
activation, for which cuDNN has compiled kernels; with a bias in fp32 it matches only kernels generated at run time."""


NO_PLAN = (cudnn.cudnnGraphNotSupportedError, RuntimeError)
"""What the frontend raises for a graph or a plan that does not exist on this GPU."""


def nhwc(extents: Extents) -> dict[str, list[int]]:
    """Extents (N, C, H, W) and strides of a value with its channels innermost."""
    _, c, h, w = extents
    return {"dim": list(extents), "stride": [c * h * w, 1, w * c, c]}


class FusedGraph:
    """The graph of a step in one form. `names`: of its plans, best first by cuDNN's heuristics."""

    def __init__(self, plan: LayerPlan, step: Convolution, form: str, handle: Any = None, **graph: Any) -> None:
        """Raises one of NO_PLAN where cuDNN has no plan. graph: further arguments of the pygraph."""
        self._handle = handle
        try:
            self._graph = _planned(plan, step, form, cudnn.heur_mode.A, {"handle": handle, **graph})
        except NO_PLAN:
            self._graph = _planned(plan, step, form, cudnn.heur_mode.FALLBACK, {"handle": handle, **graph})
        count = self._graph.get_execution_plan_count()
        self.names = [str(self._graph.get_plan_name_at_index(index)) for index in range(count)]

    def build(self, index: int) -> int:
        """Finalise a plan; returns the bytes of workspace that it needs."""
        self._graph.build_plan_at_index(index)
        return int(self._graph.get_workspace_size_plan_at_index(index))

    def launch(self, index: int, addresses: Mapping[int, int], workspace: int) -> None:
        """Enqueue a plan that was built; addresses by the tensors' ids."""
        self._graph.execute_plan_at_index(dict(addresses), workspace, index=index, handle=self._handle)


def _planned(plan: LayerPlan, step: Convolution, form: str, heuristics: Any, arguments: Mapping[str, Any]) -> Any:
    """A pygraph with the plans that the heuristics give."""
    half, single = cudnn.data_type.HALF, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=half, intermediate_data_type=single, compute_data_type=single, **arguments)
    weight = plan.constants[step.weight].shape
    source = graph.tensor(uid=SOURCE, name="source", **nhwc(plan.extents[step.source]))
    filters = graph.tensor(uid=WEIGHT, name="weight", **nhwc(weight))  # KRSC
    value = graph.conv_fprop(
        image=source,
        weight=filters,
        pre_padding=list(step.before),
        post_padding=list(step.after),
        stride=list(step.stride),
        dilation=list(step.dilation),
    )
    if step.residual is not None:
        # Before the bias: the order of the pattern that the precompiled kernels have.
        value = graph.add(value, graph.tensor(uid=RESIDUAL, name="residual", **nhwc(plan.extents[step.residual])))
    kind = half if form == "precompiled" else single
    value = graph.add(value, graph.tensor(uid=BIAS, name="bias", data_type=kind, **nhwc((1, weight[0], 1, 1))))
    if step.activation is not None:
        value = graph.relu(value, **_clips(step.activation))
    layout = nhwc(plan.extents[step.result])
    value.set_output(True).set_uid(RESULT).set_data_type(half)
    value.set_dim(layout["dim"]).set_stride(layout["stride"])
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([heuristics])
    return graph


def _clips(bounds: Activation) -> dict[str, float]:
    """Arguments of relu(): none for a plain one, whose kernels are precompiled."""
    if bounds == Activation():
        return {}
    return {"lower_clip": bounds.lower} | ({} if bounds.upper is None else {"upper_clip": bounds.upper})
