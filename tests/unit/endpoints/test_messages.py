"""Events, tensors, JSON and times of servers: pure functions."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.endpoints.completions import EventReader
from harness.endpoints.contract import Exchange, RequestFailureError, ServerTotals
from harness.endpoints.http_connection import note_server_timing
from harness.endpoints.kserve import (
    DATATYPES,
    datatype_of,
    from_raw,
    from_values,
    note_parameters,
    raw_of,
    totals_of,
)
from harness.endpoints.kserve_http import object_of, outputs_of, request_of

STREAM = (
    ": ping\r\n\r\ndata: one\n\ndata: a\rdata: b\r\rid: 5\ndata:  two\r\n\r\nevent: x\n\ndata\n\ndata: é\n\ndata: cut"
)
EVENTS = ["one", "a\nb", " two", "", "é"]


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=8))
def test_events_are_the_same_however_the_stream_is_cut(places: list[int]) -> None:
    content = STREAM.encode()
    cuts = [0, *sorted(places), len(content)]
    reader = EventReader()
    results = [data for a, b in itertools.pairwise(cuts) for data in reader.feed(content[a:b])]
    assert results == EVENTS


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 50, b"data: 12345678\n" * 5, b"x" * 60])
def test_an_event_has_a_limit(piece: bytes) -> None:
    with pytest.raises(RequestFailureError, match="too large"):
        EventReader(most_bytes=30).feed(piece)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_arrays_survive_raw_and_as_numbers(datatype: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(DATATYPES[datatype])
    assert datatype_of(values) == datatype
    assert np.array_equal(from_raw("y", datatype, [2, 3], raw_of(values)), values)
    assert np.array_equal(from_values("y", datatype, [2, 3], values.tolist()), values)
    assert np.array_equal(from_values("y", datatype, [2, 3], values.reshape(-1).tolist()), values)


def test_bytes_are_little_endian_and_row_major_for_every_array() -> None:
    values = np.arange(6, dtype=">i4").reshape(2, 3).T
    assert raw_of(values).tobytes() == np.array([[0, 3], [1, 4], [2, 5]], "<i4").tobytes()


@pytest.mark.parametrize(
    ("datatype", "shape", "raw"),
    [
        ("FP32", [2], b"1234567"),
        ("FP32", [-2], b""),
        ("FP32", ["2"], b""),
        ("FP32", "2", b""),
        ("FP32", None, b""),
        ("FP32", [True], b"1234"),
        ("FP32", [1] * 40, b"1234"),
        ("FP32", [1 << 62], b""),
        ("BYTES", [1], b""),
        (None, [1], b""),
    ],
)
def test_bytes_that_do_not_fit_are_malformed(datatype: object, shape: object, raw: bytes) -> None:
    with pytest.raises(RequestFailureError) as caught:
        from_raw("y", datatype, shape, raw)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("data", [[1, 2, 3], [[1], [1, 2]], ["a", "b"], [None, 1], [{}, {}]])
def test_numbers_that_do_not_fit_are_malformed(data: list[object]) -> None:
    with pytest.raises(RequestFailureError) as caught:
        from_values("y", "FP32", [2], data)
    assert caught.value.kind == "malformed"


def test_a_request_has_the_form_of_the_protocol() -> None:
    text, raws = request_of({"x": np.array([[1.5]], np.float32)}, binary=True)
    assert json.loads(text) == {
        "inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}],
        "parameters": {"binary_data_output": True},
    }
    assert b"".join(raws) == np.float32(1.5).tobytes()
    text, raws = request_of({"x": np.array([[1.5]], np.float32)}, binary=False)
    assert json.loads(text) == {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.5]}]}
    assert raws == []


BAD_ANSWERS = [
    {},
    {"outputs": []},
    {"outputs": {"y": 1}},
    {"outputs": [5]},
    {"outputs": [{"datatype": "FP32", "shape": [1], "data": [1]}]},
    {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}]},
    {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": -4}}]},
    {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": "4"}}]},
    {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}] * 2},
    {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]},  # four bytes are left over
]


@pytest.mark.parametrize("answer", BAD_ANSWERS)
def test_an_answer_of_another_form_is_malformed(answer: dict[str, object]) -> None:
    with pytest.raises(RequestFailureError) as caught:
        outputs_of(answer, memoryview(b"1234"))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b'{"a":', b"[" * 100_000, b'{"a": ' + b"1" * 5_000 + b"}", b"\xff"])
def test_text_that_is_no_object_is_malformed(text: bytes) -> None:
    with pytest.raises(RequestFailureError) as caught:
        object_of(text)
    assert caught.value.kind == "malformed"


def test_a_server_reports_its_time_in_parameters_or_a_header() -> None:
    trace = Exchange()
    note_parameters({"queue_ns": 5, "compute_ns": 7, "other": "x"}, trace)
    assert (trace.server_queue_ns, trace.server_compute_ns) == (5, 7)
    note_server_timing('cache;desc="a", queue;dur=1.5, compute;desc=x;dur=2', trace)
    assert (trace.server_queue_ns, trace.server_compute_ns) == (1_500_000, 2_000_000)


@pytest.mark.parametrize("header", [None, "", "queue", "queue;dur=-1", "queue;dur=x", ";;,,", "queue;dur=" + "9" * 400])
def test_other_times_are_ignored(header: str | None) -> None:
    trace = Exchange()
    note_server_timing(header, trace)
    note_parameters({"queue_ns": -1, "compute_ns": True}, trace)
    note_parameters("x", trace)
    assert (trace.server_queue_ns, trace.server_compute_ns) == (-1, -1)


def test_sums_of_a_server_add_up_over_versions() -> None:
    parts = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    model = {"execution_count": "3", "inference_stats": {name: {"count": "4", "ns": "50"} for name in parts}}
    assert totals_of([model, model]) == ServerTotals(8, 8, 6, 100, 100, 100, 100)
    for other in (None, [], "x", [{}], [5], [{**model, "execution_count": -1}]):
        assert totals_of(other) is None
