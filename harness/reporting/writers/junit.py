"""Writes a comparison as JUnit XML, which CI systems show row by row (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from harness.core.schemas import ComparedLoad, ComparedRow, Comparison, Judgement
from harness.reporting.tables import comparison_table

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold even escaped: a reason may quote a terminal's colour codes."""

SKIPPED = frozenset({"NOT COMPARABLE", "GONE"})


def junit(comparison: Comparison) -> str:
    """One suite of rows and one of thresholds: a slower row and a missed threshold are failures."""
    root = Element("testsuites", name="inferometer compare")
    if comparison.baseline is not None:
        _suite(root, "baseline", (_row_case(row) for row in comparison.rows))
    if comparison.loads:
        _suite(root, "load", map(_load_case, comparison.loads))
    if comparison.judgements:
        _suite(root, "thresholds", map(_threshold_case, comparison.judgements))
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, name: str, cases: Iterable[Element]) -> None:
    suite = SubElement(root, "testsuite", name=name)
    suite.extend(cases)
    suite.set("tests", str(len(suite)))
    for counted, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(counted, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("errors", "0")


def _row_case(row: ComparedRow) -> Element:
    return _case(f"{row.model}.{row.backend}", row.case_id, row.verdict, row.fails, comparison_table.change_text(row))


def _load_case(load: ComparedLoad) -> Element:
    return _case(
        f"{load.model}.{load.backend}", load.load_id, load.verdict, load.fails, comparison_table.load_change_text(load)
    )


def _threshold_case(judgement: Judgement) -> Element:
    outcome = judgement.outcome
    text = comparison_table.judgement_text(judgement)
    return _case(judgement.threshold, judgement.case_id, outcome, outcome != "PASS", text)


def _case(class_name: str, name: str, verdict: str, fails: bool, text: str) -> Element:
    case = Element("testcase", classname=_clean(class_name), name=_clean(name))
    message = _clean(f"{verdict}: {text}")
    if fails:
        SubElement(case, "failure", message=message, type=verdict)
    elif verdict in SKIPPED:
        SubElement(case, "skipped", message=message)
    else:
        SubElement(case, "system-out").text = message
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
