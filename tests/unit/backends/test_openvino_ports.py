"""Which tensor of the export each port of OpenVINO's graph is."""

from __future__ import annotations

import pytest

from harness.core.errors import CaseError

pytest.importorskip("openvino")

from harness.backends.openvino.runtime import matched_ports


@pytest.mark.parametrize(
    ("ports", "names", "expected"),
    [
        ([{"x"}, {"y"}], ["x", "y"], ("x", "y")),
        ([{"y"}, {"x"}], ["x", "y"], ("y", "x")),
        ([{"a", "x"}], ["x"], ("x",)),
        ([{"a"}, {"b", "z"}], ["x", "z"], ("x", "z")),
        ([{"b"}, {"a"}], ["z", "a"], ("z", "a")),
        ([set(), set()], ["x", "y"], ("x", "y")),
        ([{"x", "y"}, {"x", "y"}], ["x", "y"], ("x", "y")),
    ],
)
def test_ports_are_matched_by_any_name_then_by_position(
    ports: list[set[str]], names: list[str], expected: tuple[str, ...]
) -> None:
    assert matched_ports(ports, names) == expected


def test_a_graph_with_other_ports_is_refused() -> None:
    with pytest.raises(CaseError, match=r"1 tensors where the ONNX file has 2: x, y"):
        matched_ports([{"x"}], ["x", "y"])
