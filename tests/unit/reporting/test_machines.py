"""Machines side by side: ratios over the baseline of the same machine, differences by name, a panel a machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import compare
from harness.core import store
from harness.core.errors import MissingInputError, UsageError
from harness.core.layout import Results
from harness.core.schemas import Case, Measured, Summary
from harness.core.units import ABSENT
from harness.reporting.charts.spec import Absent, Mark
from harness.reporting.charts.speedup_charts import machines_chart
from harness.reporting.table import Table
from harness.reporting.tables.machines_tables import across_machines, machines_blocks
from tests import synthetic_results as made
from tests.synthetic_results import MINILM

CASES = [made.case_of(MINILM, name, "fp32", 1, 32) for name in ("torch-eager", "onnxruntime", "openvino")]
EAGER, ORT, OPENVINO = (case.case_id for case in CASES)


def summary(cpu: str, *names: str, slower: float = 1.0, backend: str = "", **changes: object) -> Summary:
    """Of these cases, the first by default; `slower` slows one backend down, or all of the machine."""

    def change(case: Case, record: Measured) -> Measured:
        return made.slowed(record, slower if backend in ("", case.backend) else 1.0)

    cases = [case for case in CASES if not names or case.case_id in names]
    here = made.environment(cpu=cpu, **changes)
    return made.Synthetic(
        models=(MINILM,), cases=cases, change=change, environments={made.ENVIRONMENT_ID: here}
    ).summary()


def tables(summaries: dict[str, Summary]) -> list[Table[object]]:
    return [block for block in machines_blocks(summaries) if isinstance(block, Table)]


def test_a_machine_that_is_slower_in_everything_has_the_same_ratios() -> None:
    fast, slow = summary("A"), summary("B", slower=3.0)
    ratios, _ = tables({"one": fast, "two": slow})
    assert ratios.headers == ["case", "what it costs", "one", "two", "highest ÷ lowest"]
    assert len(ratios.rows) == 2
    for _, loss, entry, two, spread in ratios.cells():
        assert loss == "nothing"
        assert entry == two
        assert re.match(r"~?[\d.]+×", entry)
        assert spread == "1.00×"


def test_a_backend_that_gains_less_on_one_machine_is_seen() -> None:
    ratios, _ = tables({"one": summary("A"), "two": summary("B", slower=2.0, backend="openvino")})
    spreads = {row[0]: row[-1] for row in ratios.cells()}
    assert spreads[f"{MINILM.name} openvino fp32 b1 s32"] == "2.00×"
    assert spreads[f"{MINILM.name} onnxruntime fp32 b1 s32"] == "1.00×"


def test_cases_of_one_machine_come_last_and_are_not_compared() -> None:
    results = across_machines({"one": summary("A"), "two": summary("B", EAGER, OPENVINO)})
    assert [(case.label.split()[1], sorted(case.rows)) for case in results] == [
        ("openvino", ["one", "two"]),
        ("onnxruntime", ["one"]),
    ]
    ratios, _ = tables({"one": summary("A"), "two": summary("B", EAGER, OPENVINO)})
    assert ratios.cells()[1][3:] == [ABSENT, ABSENT]


def test_a_quantised_case_has_its_loss_of_accuracy_beside_its_speed() -> None:
    quantised = [
        made.case_of(MINILM, name, precision, 1, 32)
        for name, precision in (("torch-eager", "fp32"), ("openvino", "int8"))
    ]
    own = made.Synthetic(models=(MINILM,), cases=quantised).summary()
    ratios, *_ = tables({"one": own, "two": own})
    (row,) = ratios.cells()
    assert re.fullmatch(r"(cosine .*|.*of answers change|no answer changes)( \(the least accurate\))?", row[1])


def test_processors_and_libraries_that_differ_are_named() -> None:
    other = summary("B", libraries={**made.environment().software.libraries, "openvino": "9.9"})
    *_, differ = tables({"one": summary("A"), "two": other, "three": summary("A")})
    results = {row[0]: row[1:] for row in differ.cells()}
    assert results["machine.cpu"] == ["A", "B", "A"]
    assert results["library openvino"][1] == "9.9"
    assert results["library openvino"][0] == results["library openvino"][2] != "9.9"
    assert not {"plan", "settings", "configuration"} & results.keys()
    assert "the same on all machines" in str(machines_blocks({"one": summary("A"), "two": summary("A")})[-1])


def test_the_chart_has_a_panel_a_machine() -> None:
    chart = machines_chart({"one": summary("A"), "two": summary("B", EAGER, OPENVINO)})
    assert chart is not None
    assert [panel.title for panel in chart.panels] == ["one", "two"]
    first, second = chart.panels
    assert all(isinstance(mark, Mark) for mark in first.lines.values())
    assert [type(mark) for mark in second.lines.values()] == [Mark, Absent]
    assert first.axis == second.axis
    assert "one: A" in chart.conditions
    assert machines_chart({"one": summary("A", EAGER), "two": summary("B", EAGER)}) is None


def test_compare_writes_the_machines_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path)
    arguments = ["--results", str(tmp_path), "--across"]
    with pytest.raises(UsageError, match="nothing to compare"):
        compare.stage(arguments)
    store.save(results.machine("h200").summary, summary("A"))
    results.machine("epyc").root.mkdir()
    with pytest.raises(MissingInputError, match="Fewer than two"):
        compare.stage(arguments)
    assert "epyc has no summary.json" in capsys.readouterr().err
    store.save(results.machine("epyc").summary, summary("B"))
    compare.stage(arguments)
    text = results.machines_report.read_text()
    assert "![Speed-up over torch-eager fp32, by machine](charts/machines.png)" in text
    assert "| epyc" in text
    assert results.machines_chart.read_bytes().startswith(b"\x89PNG")
