"""The seal of a record: what is sealed opens again, and any changed byte is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from harness.core import schemas, store
from harness.core.errors import FormatError, MalformedFileError, NewerFormatError
from harness.core.schemas import Plan, Running
from harness.core.seal import sealed, unsealed
from tests.synthetic_results import RESNET, Synthetic, case_of, plan_of

PLAN = plan_of([RESNET], [case_of(RESNET, "noop", "fp32", 1)])
RUNNING = Running(
    plan_id="a1b2",
    pid=12345,
    place="x",
    started_at="2026-11-29T10:00:00Z",
    turns=9,
    done=1,
    case_id="c-1",
    round=2,
    since="10:01",
)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_seal_is_the_sum_of_the_rest_and_the_file_stays_json(indent: int | None) -> None:
    plain = PLAN.model_dump_json(indent=indent).encode() + b"\n"
    content = sealed(plain)
    assert list(json.loads(content)) == [*json.loads(plain), "seal"]
    assert json.loads(content)["seal"] == hashlib.sha256(plain).hexdigest()
    assert (unsealed(content).content, unsealed(content).seal, unsealed(content).broken) == (
        plain,
        unsealed(content).digest,
        False,
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_any_other_byte_anywhere_is_refused(indent: int | None) -> None:
    whole = store.encoded(RUNNING, indent)
    assert store.parse(Path("running.json"), whole, Running, "make run") == RUNNING
    for place in range(len(whole)):
        for byte in {*b'0123456789abcdef "}\n,', whole[place] ^ 1, whole[place] ^ 0x20} - {whole[place]}:
            content = whole[:place] + bytes([byte]) + whole[place + 1 :]
            with pytest.raises(FormatError, match=r"running\.json"):
                store.parse(Path("running.json"), content, Running, "make run")


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_a_file_that_another_program_formatted_is_named_as_changed(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "plan.json"
    store.save(path, PLAN)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=indent))
    with pytest.raises(MalformedFileError, match=r"plan\.json has changed since it was written") as refused:
        store.load(path, Plan, "make plan")
    assert "Run `make plan`" in refused.value.hint


def test_a_changed_digit_is_named_as_a_change_with_the_next_command(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    store.save(path, PLAN)
    path.write_bytes(path.read_bytes().replace(b'"max_s": 10.0', b'"max_s": 90.0'))
    with pytest.raises(MalformedFileError, match=r"plan\.json has changed since it was written") as refused:
        store.load(path, type(PLAN), "make plan")
    assert "`make plan`" in refused.value.hint


def test_a_record_without_a_seal_is_read_and_remembered_as_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(PLAN.model_dump_json(indent=2))
    store.UNSEALED.clear()
    assert store.load(path, type(PLAN), "make plan") == PLAN
    assert list(store.UNSEALED) == [path]


def test_sealed_and_unsealed_have_the_same_sum(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_bytes(PLAN.model_dump_json(indent=2).encode() + b"\n")
    store.save(new, PLAN)
    sums: dict[Path, str] = {}
    for path in (old, new):
        store.load(path, type(PLAN), "make plan", sums)
        assert store.content_sums(path, "make plan") == (sums[path],)
    assert sums[old] == sums[new]


KINDS = sorted(
    (kind for kind in vars(schemas).values() if isinstance(kind, type) and issubclass(kind, BaseModel)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "schema_version" in kind.model_fields])
def test_a_reader_without_seals_refuses_the_field_and_misreads_nothing(kind: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate_json(b'{"schema_version":1,"seal":"00"}')
    assert ("extra_forbidden", ("seal",)) in [(error["type"], error["loc"]) for error in caught.value.errors()]


def test_a_reader_of_format_1_asks_for_an_update_at_the_first_file_of_any_stage(tmp_path: Path) -> None:
    run = Synthetic(models=(RESNET,), cases=PLAN.cases, rounds=1, samples=40)
    run.write(tmp_path, tmp_path / "models")
    store.save(tmp_path / "summary.json", run.summary())
    raw = next(tmp_path.glob("raw/*/1.json"))
    for path, content in (
        (tmp_path / "plan.json", (tmp_path / "plan.json").read_bytes()),
        (tmp_path / "summary.json", (tmp_path / "summary.json").read_bytes()),
        (raw, store.opened_raw(raw, raw.read_bytes())[1]),
    ):
        with pytest.raises(NewerFormatError, match="knows up to 1"):
            store.check_version(path, content, (1,), "make plan")
