"""Devices of one host: which CARDS name, and the CPUs of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.processes import device_slots
from harness.processes.device_slots import cpu_parts, cpu_shares, find_slots, slot_variables


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_slots.limits, "affinity", lambda: tuple(range(8)))


def described(name: str) -> tuple[str, str, tuple[int, ...] | None]:
    return "A GPU", f"GPU-{name}", tuple(range(8))


def test_equal_parts_are_contiguous_and_the_remainder_stays_idle() -> None:
    assert cpu_parts(range(9), 2) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert cpu_parts((3, 5, 8, 9), 2) == [(3, 5), (8, 9)]
    assert cpu_parts(range(3), 2) == [(), ()]
    assert cpu_parts(range(3), 2, least=1) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        # Two sockets, two GPUs near each: every socket is divided between its two.
        ([(0, 1, 2, 3)] * 2 + [(4, 5, 6, 7)] * 2, [((0, 1), True), ((2, 3), True), ((4, 5), True), ((6, 7), True)]),
        # Sockets of different size: equally many CPUs for each, or rows could not be compared.
        ([(0, 1, 2, 3, 4), (5, 6, 7)], [((0, 1, 2), True), ((5, 6, 7), True)]),
        # Nothing is known about one, sets overlap, a share is too small: equal shares of all.
        ([(0, 1, 2, 3), None], [((0, 1, 2, 3), False), ((4, 5, 6, 7), False)]),
        ([(0, 1, 2, 3), (2, 3, 4, 5)], [((0, 1, 2, 3), False), ((4, 5, 6, 7), False)]),
        ([(0, 1, 2, 3, 4, 5, 6), (7,)], [((0, 1, 2, 3), False), ((4, 5, 6, 7), False)]),
        # CPUs that this process may not use do not count.
        ([(0, 1, 60), (2, 3, 61)], [((0, 1), True), ((2, 3), True)]),
    ],
)
def test_near_cpus_are_divided_among_their_gpus(
    near: list[tuple[int, ...] | None], expected: list[tuple[tuple[int, ...], bool]]
) -> None:
    assert cpu_shares(range(8), near, 2) == expected


@pytest.mark.usefixtures("eight_cpus")
def test_gpus_are_named_as_cuda_visible_devices_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    named = find_slots("0, 2", "cuda", described)
    assert [(slot.name, slot.uuid, slot.cpus, slot.near) for slot in named] == [
        ("0", "GPU-0", (0, 1, 2, 3), True),
        ("2", "GPU-2", (4, 5, 6, 7), True),
    ]
    assert slot_variables(named[1]) == {"CUDA_VISIBLE_DEVICES": "2"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [slot.name for slot in find_slots("all", "cuda", described)] == ["3", "5"]


@pytest.mark.usefixtures("eight_cpus")
def test_a_plan_for_cpus_has_shares_of_the_cpus(tmp_path: Path) -> None:
    slots = find_slots("a,b,c", "cpu")
    assert [slot.cpus for slot in slots] == [(0, 1), (2, 3), (4, 5)]
    assert (slots[0].gpu, slot_variables(slots[0])) == (None, {})
    for node, cpus in (("node0", "0-2,9"), ("node1", "4-7")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(f"{cpus}\n")
    by_node = find_slots("all", "cpu", nodes=tmp_path)
    assert [(slot.name, slot.cpus, slot.near) for slot in by_node] == [("0", (0, 1, 2), True), ("1", (4, 5, 6), True)]
    with pytest.raises(UsageError, match="one NUMA node"):
        find_slots("all", "cpu", nodes=tmp_path / "node0")
    with pytest.raises(UsageError, match="too few"):
        find_slots(",".join("abcdefghi"), "cpu")


def test_a_value_without_a_device_is_refused() -> None:
    with pytest.raises(UsageError, match="no device"):
        find_slots(" , ", "cpu")
