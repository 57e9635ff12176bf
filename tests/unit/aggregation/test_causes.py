"""Remedies where another flag of the same row explains a flag: a backend is not blamed for work of others."""

from __future__ import annotations

import pytest

from harness.aggregation.causes import BESIDES, HELD_BACK, MACHINE, SCATTER, with_causes
from harness.aggregation.checks import RULES
from harness.aggregation.grades import Finding, finding
from harness.reporting.tables.validity_tables import MEANINGS

STARVED = finding("C", "STARVED", "its threads waited", "Stop what else runs.", HELD_BACK)
LAZY = finding("C", "LAZY_OUTPUTS", "outputs() took long", "infer() must do all of the work.", MACHINE)


def remedies(*findings: Finding) -> dict[str, str]:
    return {found.flag.name: found.flag.remedy for found in with_causes(findings)}


def test_the_flag_that_may_explain_another_comes_first_in_its_remedy() -> None:
    assert remedies(LAZY, STARVED) == {
        "STARVED": "Stop what else runs.",
        "LAZY_OUTPUTS": "STARVED may explain it: begin there. infer() must do all of the work.",
    }
    assert remedies(LAZY)["LAZY_OUTPUTS"] == LAZY.flag.remedy
    shared = finding("C", "CPU_SHARED", "", "")
    assert remedies(shared, LAZY, STARVED)["LAZY_OUTPUTS"].startswith("CPU_SHARED and STARVED may explain it: ")


def test_a_quota_explains_why_threads_wait_and_wrong_outputs_are_never_explained() -> None:
    quota = finding("C", "CPU_QUOTA", "", "Raise it.")
    wrong = finding("F", "PARITY_FAIL", "", "Compare the outputs.")
    shown = remedies(quota, STARVED, wrong)
    assert shown["STARVED"].startswith("CPU_QUOTA may explain it: begin there. ")
    assert (shown["CPU_QUOTA"], shown["PARITY_FAIL"]) == ("Raise it.", "Compare the outputs.")


def test_a_remedy_that_closes_other_programs_names_only_other_causes() -> None:
    wide = finding("B", "NOT_CONVERGED", "", "Close other programs.", BESIDES)
    assert remedies(wide, STARVED)["NOT_CONVERGED"] == "Close other programs."
    stolen = finding("C", "STEAL", "", "")
    assert remedies(wide, stolen)["NOT_CONVERGED"] == "STEAL may explain it: begin there. Close other programs."


def test_the_grade_does_not_change() -> None:
    assert [found.caps_at for found in with_causes([LAZY, STARVED])] == ["C", "C"]


@pytest.mark.parametrize("group", [MACHINE, SCATTER, HELD_BACK, BESIDES])
def test_causes_are_flags(group: frozenset[str]) -> None:
    assert group <= set(MEANINGS)
    assert not any(rule.name in rule.causes for rule in RULES)
