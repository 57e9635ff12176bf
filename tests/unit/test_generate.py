"""Which cases of generation are not measured, though their model has an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Failed
from harness.generate import _split_off_unexported
from harness.planning.exports import GenerationExports
from tests.synthetic_generation import CASE, EXPORT, PLAN


def test_a_batch_that_has_all_prompts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 16 prompts a batch of 15 differs in every request, and a batch of 16 has the same ones in all of them."""
    fits, full = (
        CASE.model_copy(update={"batch_size": size, "case_id": f"{CASE.case_id}-{size}"}) for size in (15, 16)
    )
    results = Results(tmp_path).of_generation
    exports = GenerationExports({CASE.model: EXPORT}, {})
    assert _split_off_unexported(PLAN, [(1, fits), (1, full)], exports, results) == [(1, fits)]
    record = store.load_generated(results.raw_file(full.case_id, 1))
    assert isinstance(record, Failed)
    assert record.error.startswith("A batch of 16 has all 16 different prompts of 5 tokens")
    assert "PROMPTS" not in record.error
    assert "Write more than 16 prompts" in record.hint
    assert "A batch of 16 has all 16" in capsys.readouterr().err
