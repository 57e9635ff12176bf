"""Published claims: reads them, fills in those that refer to a results folder, and plans measurements to check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.aggregation import flags, grades
from harness.backends import BACKENDS, backend_info
from harness.comparison.claim_verdicts import case_on_device
from harness.core import file_sums, safe_files, store
from harness.core.errors import ConfigError, MissingInputError, UsageError
from harness.core.layout import Results
from harness.core.schemas import Claim, ClaimedModel, ClaimedValue, Device, Interval, Plan, PublishedCase, Row, Summary
from harness.core.text import unknown_name
from harness.planning.config import Config, MatrixBlock, ModelEntry, first_error, key_path, read_yaml
from harness.planning.matrix import make_plan
from harness.zoo import model_info

FOLDER = Path("configs/published")
SUFFIX = ".yaml"


_KEYS = "docs/claims.md has every key."
"""The remedy for a file that is no claim."""


def names(folder: Path) -> list[str]:
    """Names of all claims."""
    return sorted(path.stem for path in folder.glob(f"*{SUFFIX}"))


def read(name: str, folder: Path) -> Claim:
    """A claim by its name. Raises UsageError for an unknown one, ConfigError for a file that cannot be used."""
    if name not in (known := names(folder)):
        problem, hint = unknown_name("claim", name, known)
        if Path(name).stem in known:
            hint = f"CLAIM takes the name, and no path: CLAIM={Path(name).stem}."
        raise UsageError(problem, f"{hint} make reproduce CLAIM=list describes them.")
    path = folder / f"{name}{SUFFIX}"
    try:
        data = read_yaml(path)
    except (ConfigError, MissingInputError) as error:
        raise type(error)(error.problem.removeprefix("The configuration "), _KEYS) from error
    return parse(data, str(path))


def parse(data: Mapping[str, Any], source: str) -> Claim:
    """Check a claim given as plain data; keys of `common` apply to every value that does not have them itself."""
    try:
        # Through JSON, because only there pydantic's strict mode accepts a list for a tuple.
        return Claim.model_validate_json(json.dumps(_spelled_out(data, source), default=str), strict=True)
    except ValidationError as error:
        first = first_error(error)
        problem = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{source}: {key_path(first['loc']) or '(whole file)'}: {problem}.", _KEYS) from error


def _spelled_out(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    common, values = data.get("common", {}), data.get("values")
    if not isinstance(common, dict):
        raise ConfigError(f"{source}: common: not a mapping of keys to values.", _KEYS)
    rest = {key: value for key, value in data.items() if key != "common"}
    if not isinstance(values, list):
        return rest
    return {**rest, "values": [{**common, **value} if isinstance(value, dict) else value for value in values]}


# --- our own published runs ---------------------------------------------------------------------------------------


def published_run(claim: Claim) -> tuple[Summary, Plan] | None:
    """The published run that a claim refers to; None where the claim has its own values."""
    if claim.results is None:
        return None
    folder = Results(safe_files.path_inside(Path(), claim.results))
    made_by = "git checkout -- results/published"
    return file_sums.load_summary(folder.summary, made_by), store.load(folder.plan, Plan, made_by)


def filled_in(claim: Claim, summary: Summary, plan: Plan) -> Claim:
    """The claim with every sound row of a published run as a value, named by its case id and with its interval."""
    calibration = {name for name, backend in BACKENDS.items() if not backend.computes}
    rows = [row for row in summary.rows if _is_sound(row) and row.backend not in calibration]
    if not rows:
        raise ConfigError(f"{claim.results} has no row that could be reproduced.", "Name another results folder.")
    used = {row.model for row in rows}
    models = [model for model in plan.models if model.name in used]
    return claim.model_copy(
        update={
            "models": tuple(
                ClaimedModel(name=model.name, weights=model.weights, gates={**plan.gates, **model.gates})
                for model in models
            ),
            "values": tuple(_as_value(row) for row in rows),
            "measurement": plan.measurement,
            "device": plan.device,
        }
    )


def _is_sound(row: Row) -> bool:
    return row.latency_ns is not None and row.grade in grades.RANKED and not row.tried and not flags.is_too_short(row)


def _as_value(row: Row) -> ClaimedValue:
    cell = row.model_dump(include=set(PublishedCase.model_fields))
    latency = row.latency_ns
    interval = latency.ci95 if latency else None
    return ClaimedValue(
        **cell,
        name=row.case_id,
        latency_ms=latency.median / 1e6 if latency else None,
        ci95_ms=Interval(low=interval.low / 1e6, high=interval.high / 1e6) if interval else None,
    )


# --- what is measured here ----------------------------------------------------------------------------------------


def configuration(claim: Claim, device: Device, rounds: int | None) -> tuple[Config | None, dict[str, str]]:
    """(configuration with exactly the claim's cases, why the other values are left out, by name).

    None where this device can measure none of them, or where the claim is only context.
    """
    if claim.context is not None:
        return None, {}
    left_out: dict[str, str] = {}
    blocks: dict[MatrixBlock, None] = {}
    for value in claim.values:
        measured_block = _block(claim, value, device)
        if isinstance(measured_block, str):
            left_out[value.name] = measured_block
        else:
            blocks[measured_block] = None
    if not blocks:
        return None, left_out
    used = {model for block in blocks for model in block.models or ()}
    measurement = claim.measurement.model_copy(update={} if rounds is None else {"rounds": rounds})
    return (
        Config(
            device=device,
            models=tuple(_entry(model) for model in claim.models if model.name in used),
            matrix=tuple(blocks),
            measurement=measurement,
        ),
        left_out,
    )


def _entry(model: ClaimedModel) -> ModelEntry:
    weights = None if model.weights == "own" else model.weights
    return ModelEntry(name=model.name, weights=weights, gates=dict(model.gates))


def _block(claim: Claim, value: ClaimedValue, device: Device) -> MatrixBlock | str:
    """A block for the case of one value, or why this device has no such case."""
    cell = case_on_device(value, claim, device)
    table = backend_info(cell.backend)
    model_info(cell.model)
    if claim.device not in (None, device):
        return f"published for {claim.device}, DEVICE={claim.device} measures it"
    if device not in table.precisions:
        return f"{cell.backend} does not run on {device}"
    # If this device does not have the setting, the backend keeps its usual setting; the verdict names it.
    settings = (cell.setting,) if cell.setting and table.has_setting(device, cell.setting) else None
    block = MatrixBlock(
        backends=(cell.backend,),
        models=(cell.model,),
        precisions=(cell.precision,),
        batch_sizes=(cell.batch_size,),
        sequence_lengths=(cell.sequence_length or 128,),
        boundaries=(cell.boundary,),
        modes=(cell.mode,),
        settings=settings,
    )
    model = next(model for model in claim.models if model.name == cell.model)
    try:
        cases = make_plan(Config(device=device, models=(_entry(model),), matrix=(block,)), "claim", "").cases
    except ConfigError as error:
        return error.problem.partition(": ")[2]
    return next((case.skip_reason for case in cases if case.skip_reason), None) or block
