"""Tokenising and embedding, apart."""

from __future__ import annotations

from harness.core.schemas.profile_record import LayerRow, PartsProfile, Tokenising
from harness.reporting.tables.profile_tables import tokenising_line

SHOWN = Tokenising(time_ns=1_230_000, texts=8, tokens_a_text=128, by="measured: so")
EMBEDDING = LayerRow(name="words", kind="Embedding", self_ns=45_600, total_ns=45_600, group="embedding")
PARTS = PartsProfile(layers=(EMBEDDING,), operators=(), traces=(), window_ns=1, plain_ns=1, tokenising=SHOWN)


def test_both_are_reported_with_their_own_unit() -> None:
    line = tokenising_line(PARTS)
    assert line.startswith("Tokenising 8 texts of 128 tokens takes 1.23 ms on the host")
    assert line.endswith("Embedding takes 45.6 µs, as part of it.")


def test_an_unknown_time_has_a_reason() -> None:
    unknown = SHOWN.model_copy(update={"time_ns": None, "by": "not measured: no tokenizer makes these inputs"})
    line = tokenising_line(PARTS.model_copy(update={"tokenising": unknown, "layers": ()}))
    assert "has no figure" in line
    assert "(not measured: no tokenizer makes these inputs)" in line
    assert line.endswith("without a per-layer profile.")
    assert tokenising_line(PARTS.model_copy(update={"tokenising": None})) == ""
