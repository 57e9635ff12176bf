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
    case = Element("testcase", classname=_clean(f"{row.model}.{row.backend}"), name=_clean(row.case_id))
    text = _clean(f"{row.verdict}: {comparison_table.change_text(row)}")
    if row.fails:
        SubElement(case, "failure", message=text, type=row.verdict)
    elif row.verdict in SKIPPED:
        SubElement(case, "skipped", message=text)
    else:
        SubElement(case, "system-out").text = text
    return case


def _load_case(load: ComparedLoad) -> Element:
    case = Element("testcase", classname=_clean(f"{load.model}.{load.backend}"), name=_clean(load.load_id))
    text = _clean(f"{load.verdict}: {comparison_table.load_change_text(load)}")
    if load.fails:
        SubElement(case, "failure", message=text, type=load.verdict)
    elif load.verdict in SKIPPED:
        SubElement(case, "skipped", message=text)
    else:
        SubElement(case, "system-out").text = text
    return case


def _threshold_case(judgement: Judgement) -> Element:
    case = Element("testcase", classname=_clean(judgement.threshold), name=_clean(judgement.case_id))
    text = _clean(f"{judgement.outcome}: {comparison_table.judgement_text(judgement)}")
    if judgement.outcome == "PASS":
        SubElement(case, "system-out").text = text
    else:
        SubElement(case, "failure", message=text, type=judgement.outcome)
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
