"""The conditions of a run, the differences within one table, and the full environment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from harness.core import units
from harness.core.host.environment import ALLOCATOR, COMMIT, PLUGIN, RUNTIMES, VARIABLES, commit_text
from harness.core.schemas import Environment, InputSet, LoadRow, Row, Summary, Unavailable
from harness.core.text import short_names
from harness.reporting import ranking
from harness.reporting.prose import boundaries
from harness.reporting.table import DocumentBlock, text_table
from harness.reporting.tables import custom_metrics_table as custom
from harness.reporting.writers.markdown import escape

SHOWN_LIBRARIES = ("torch", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt")
"""Libraries that compute; the environment table has all versions."""


def run_conditions(summary: Summary) -> str:
    """One paragraph with the conditions of all tables of a run, which appears once in a report. Empty without a
    measured row."""
    tables = _tables(summary)
    shared = _shared(summary, tables)
    return f"Conditions: {' · '.join(_run_parts(summary, [*chain(*tables)]) + shared)}." if tables else ""


def conditions(summary: Summary, rows: Sequence[Row], shared: Collection[str]) -> str:
    """One line with the conditions of one table that `run_conditions` does not have; empty where there are none.

    rows: of one table (ranking.by_table), or of one comparison. shared: shared_conditions(summary).
    """
    parts = [part for part in (threads_text(rows), *_table_parts(summary, rows)) if part and part not in shared]
    return " · ".join(parts) + "." if parts else ""


def shared_conditions(summary: Summary) -> frozenset[str]:
    """The conditions that `run_conditions` names."""
    tables = _tables(summary)
    return frozenset([*_shared(summary, tables), *_run_parts(summary, [*chain(*tables)])])


def page_conditions(summary: Summary) -> str:
    """Conditions on the first page besides its title: driver, libraries, and the conditions that all tables share.

    Clocks, ids and variables are in the details. Empty without a measured row.
    """
    tables = _tables(summary)
    on_gpu = any(environment.gpu for environment in summary.environments.values())
    parts = [
        machine_text(summary.environments) if on_gpu else "",
        library_versions(summary.environments),
        *_shared(summary, tables),
    ]
    return f"{escape(summary.title)}: {' · '.join(part for part in parts if part)}." if tables else ""


def _tables(summary: Summary) -> list[list[Row]]:
    return [rows for _, rows in ranking.by_table(summary.rows)]


def _run_parts(summary: Summary, rows: Sequence[Row]) -> list[str]:
    parts = [
        machine_text(summary.environments),
        threads_text(rows),
        library_versions(summary.environments),
        *_shell_settings(summary.environments),
        f"{rounds_text(summary, rows)}, each in a fresh process",
        _clock(rows),
        _device_clock(rows),
        _dates(summary),
        f"plan {summary.plan_id}",
    ]
    return [part for part in parts if part]


def _table_parts(summary: Summary, rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    export = summary.exports.get(first.model)
    weights = "random weights" if first.weights == "seeded" else f"{first.weights} weights"
    parts = [
        custom.plugins(rows),
        f"{', '.join(dict.fromkeys(row.precision for row in rows))} on {first.device}",
        boundaries.mode_condition(first),
        weights + (f" ({export.weight_source.removeprefix('random, ')})" if export else ""),
        *padded_inputs(summary, rows),
    ]
    return [part for part in parts if part]


def padded_inputs(summary: Summary, rows: Sequence[Row | LoadRow]) -> list[str]:
    """Where the inputs of rows come from, of those with padding: the work of a backend that skips it follows from its
    share."""
    cases = dict.fromkeys((row.model, row.sequence_length) for row in rows)
    sets = [_padded_set(summary, *case) for case in cases]
    return list(dict.fromkeys(escape(made.source) for made in sets if made is not None))


def _padded_set(summary: Summary, model: str, sequence_length: int | None) -> InputSet | None:
    """The inputs of a model at a length, where they have padding."""
    export = summary.exports.get(model)
    sets = () if export is None else export.input_sets
    return next(
        (made for made in sets if made.sequence_length == sequence_length and made.text_share is not None), None
    )


def _padded_tokens(summary: Summary, rows: Sequence[Row]) -> list[str]:
    """tokens_text of padded inputs."""
    cases = dict.fromkeys((row.model, row.sequence_length) for row in rows)
    padded = [case for case in cases if _padded_set(summary, *case) is not None]
    return list(dict.fromkeys(tokens_text(summary, *case) for case in padded))


def tokens_text(summary: Summary, model: str, sequence_length: int | None) -> str:
    """`128 tokens`, of padded inputs `128 tokens (15.4% text)`; empty without a length."""
    padded = _padded_set(summary, model, sequence_length)
    share = "" if padded is None else f" ({units.percent(padded.text_share)} text)"
    return f"{sequence_length} tokens{share}" if sequence_length else ""


def _shared(summary: Summary, tables: Sequence[Sequence[Row]]) -> list[str]:
    """The conditions that all tables of a run share."""
    parts = [_table_parts(summary, rows) for rows in tables]
    return [part for part in parts[0] if all(part in other for other in parts)] if parts else []


def short_conditions(summary: Summary, rows: Sequence[Row]) -> str:
    """The conditions that must accompany a figure outside its report."""
    kinds = dict.fromkeys(boundaries.brief_mode(row) for row in rows)
    parts = [
        machine_text(summary.environments),
        threads_text(rows),
        library_versions(summary.environments),
        *_shell_settings(summary.environments),
        custom.plugins(rows),
        *kinds,
        *_padded_tokens(summary, rows),
    ]
    parts += [_both_clocks(rows)]
    parts += [rounds_text(summary, rows), _dates(summary), f"plan {summary.plan_id}"]
    return " · ".join(part for part in parts if part) + "."


def environment_table(environments: Mapping[str, Environment]) -> DocumentBlock:
    """Every fact of the environment; facts that could not be read have the reason. A sentence where none is known."""
    if not environments:
        return "No environment: nothing was measured."
    recorded = list(environments.values())
    facts: dict[str, list[str]] = {}
    for environment in recorded:
        for name, text in _facts(environment):
            facts.setdefault(name, []).append(text)
    lines = [[name, _joined_texts(several)] for name, several in facts.items()]
    return text_table([("fact", "left"), ("value", "left")], lines)


def _facts(environment: Environment) -> Iterable[tuple[str, str]]:
    for part in (environment.machine, environment.limits):
        for name in type(part).model_fields:
            yield name.removesuffix("_bytes").replace("_", " "), _value(name, getattr(part, name))
    for name in type(environment.gpu).model_fields if environment.gpu else ():
        yield f"GPU {name.removesuffix('_bytes').replace('_', ' ')}", _value(name, getattr(environment.gpu, name))
    software = environment.software
    yield "python", software.python
    yield "inferometer", software.inferometer
    commit = commit_text(software) or "not a git checkout"
    yield COMMIT, f"{commit} (with local changes)" if software.git_dirty else commit
    yield from sorted(software.libraries.items())
    # A library's build is recorded under the library's own name; the row must not look like a second version of it.
    builds = (
        (name if name in (ALLOCATOR, PLUGIN, RUNTIMES, VARIABLES) else f"build of {name}", text)
        for name, text in software.build.items()
        if name != COMMIT
    )
    yield from sorted(builds)


def _value(name: str, value: object) -> str:
    if isinstance(value, Unavailable):
        return f"not available: {value.unavailable}"
    if value is None:
        return "none"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{units.mib(value)} MiB"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def machine_text(environments: Mapping[str, Environment]) -> str:
    """The processor; after the GPU and its driver where cases ran on a GPU."""
    gpus = [environment.gpu for environment in environments.values() if environment.gpu is not None]
    processor = _joined_texts(environment.machine.cpu for environment in environments.values())
    return ", host ".join([*dict.fromkeys(f"{gpu.name}, driver {gpu.driver}" for gpu in gpus), processor])


def processor_name(environments: Mapping[str, Environment]) -> str:
    """The name of the device that computes: the GPU, else the CPU."""
    gpus = [environment.gpu.name for environment in environments.values() if environment.gpu is not None]
    return _joined_texts(gpus or [environment.machine.cpu for environment in environments.values()])


def library_versions(environments: Mapping[str, Environment]) -> str:
    """The libraries that compute, each with all versions that were used."""
    libraries: dict[str, list[str]] = {}
    for environment in environments.values():
        for name in SHOWN_LIBRARIES:
            if name in environment.software.libraries:
                libraries.setdefault(name, []).append(environment.software.libraries[name])
    return ", ".join(f"{name} {_joined_texts(several)}" for name, several in libraries.items())


def _shell_settings(environments: Mapping[str, Environment]) -> Iterable[str]:
    """Settings from outside that tune the memory allocator, thread pools and kernels; defaults are left out."""
    for name in (ALLOCATOR, VARIABLES):
        builds = [environment.software.build.get(name, "as it is") for environment in environments.values()]
        if set(builds) - {"as it is"}:
            yield f"{name} {_joined_texts(builds)}"


def _clock(rows: Sequence[Row]) -> str:
    clocks = [row.clock for row in rows if row.clock]
    if not clocks:
        return ""
    return (
        f"clock {_joined_texts(clock.name for clock in clocks)} (a read costs {max(c.overhead_ns for c in clocks)} ns)"
    )


def _device_clock(rows: Sequence[Row]) -> str:
    clocks = [row.device_ns.clock for row in rows if row.device_ns]
    if not clocks:
        return ""
    apart = max(clock.overhead_ns for clock in clocks)
    return f"device clock {_joined_texts(clock.name for clock in clocks)} (two events in a row are {apart:,} ns apart)"


def _both_clocks(rows: Sequence[Row]) -> str:
    """Names of both clocks where there are two; the report has the cost of reading them."""
    clocks = [(row.clock.name, row.device_ns.clock.name) for row in rows if row.clock and row.device_ns]
    return (
        f"clocks {_joined_texts(host for host, _ in clocks)} and {_joined_texts(name for _, name in clocks)}"
        if clocks
        else ""
    )


def rounds_text(summary: Summary, rows: Sequence[Row]) -> str:
    """`3 rounds`, or `2 to 12 rounds`: some cases are not complete, or had further rounds for a narrow interval."""
    measured = [row.latency_ns.rounds for row in rows if row.latency_ns]
    low, high = min(measured, default=summary.rounds), max(measured, default=summary.rounds)
    return units.count(high, "round") if low == high else f"{low} to {units.count(high, 'round')}"


def _dates(summary: Summary) -> str:
    days = [text[:10] for text in (summary.measured_from, summary.measured_to) if text]
    return " to ".join(dict.fromkeys(days))


def threads_text(rows: Sequence[Row]) -> str:
    """Threads of all rows; empty where nothing was measured."""
    return units.either((row.threads for row in rows if row.threads), "thread")


def _joined_texts(texts: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(texts))


def with_short_names(summary: Summary) -> Summary:
    """The summary with short names, for tables and charts; its exports keep the whole names."""
    tokens, loads = (row.model for row in summary.generations), (row.model for row in summary.loads)
    short = short_names([*(row.model for row in summary.rows), *tokens, *loads, *summary.exports])
    if all(name == shown for name, shown in short.items()):
        return summary
    return summary.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"model": short[row.model]}) for row in summary.rows),
            "generations": tuple(row.model_copy(update={"model": short[row.model]}) for row in summary.generations),
            "loads": tuple(row.model_copy(update={"model": short[row.model]}) for row in summary.loads),
            "exports": {short[name]: record for name, record in summary.exports.items()},
        }
    )


def whole_names(summary: Summary) -> str:
    """The whole name of each short name of a summary; empty where no name was shortened."""
    pairs = [(shown, record.model) for shown, record in summary.exports.items() if shown != record.model]
    return " ".join(f"`{shown}` is `{whole}`." for shown, whole in pairs)
