"""Pack one run, with all inputs of its report, into one archive with checksums.

reads   results/plan.json, command.txt, exports/, raw/, generation/, environments/, roof.json, energy/, load/,
        profiles/, selftest.{json,md}, summary.{json,csv,parquet}, report.md, report-details.md, charts/,
        written/{plan,selftest}.json; models/<slug>/engines/*.json; the configuration and the lock file
writes  results/<plan_id>.tar.xz
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.core import (
    archive,
    cli,
    file_sums,
    store,
)
from harness.core.errors import FormatError, UsageError
from harness.core.host import environment
from harness.core.layout import BUNDLE_MANIFEST, Models, Results
from harness.core.safe_files import SizeLimit, path_inside, read, read_text
from harness.core.schemas import Bundle, BundledFile, Environment, Failed, Plan
from harness.core.text import portable_again

_CHECKOUT = Path(__file__).parents[1]
_LOCKS = {"cpu": "constraints.txt", "cuda": "constraints-cuda.txt"}


def stage(arguments: Sequence[str]) -> None:
    """Collect and pack the files, and print the archive's checksum."""
    parser = cli.parser("harness.bundle", __doc__)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results, models = Results(options.results), Models(options.models_dir)
    plan = store.load(results.plan, Plan, "make plan")
    summary = file_sums.load_summary(results.summary)
    rows = {row.case_id for row in summary.rows} | {row.case_id for row in summary.generations}
    cases = {case.case_id for case in plan.cases} | {case.case_id for case in plan.generations}
    loads = {row.load_id for row in summary.loads}
    if rows != cases or loads != {load.load_id for load in plan.loads}:
        raise UsageError(
            f"{results.summary} has other rows than {results.plan} has cases.", "Run `make aggregate report` first."
        )
    file_sums.check_inputs(summary, results, models, complete=True)
    store.read_bytes(results.report, "make report")
    for stage_name, paths in _written(results).items():
        file_sums.check(results, stage_name, paths, f"make {stage_name}")
    files = collect(plan, results, models) | _checkout_files(plan)
    _warn_of_folders(files)
    manifest = manifest_of(plan, files, results)
    files[BUNDLE_MANIFEST] = store.encoded(manifest)
    packed = archive.pack(files, f"inferometer-{plan.plan_id}")
    target = results.bundle(plan.plan_id)
    store.save_bytes(target, packed)
    digest = hashlib.sha256(packed).hexdigest()
    cli.say(f"{target}: {len(manifest.files)} files, {len(packed):,} bytes, sha256 {digest}")
    cli.say(f"Check it: make verify BUNDLE={shlex.quote(str(target))}")


def collect(plan: Plan, results: Results, models: Models) -> dict[str, bytes]:
    """Content by path in the bundle. Raises MalformedFileError where a link leads out of results/ or models/."""
    files = {f"results/{path.relative_to(results.root)}": path for path in _result_paths(plan, results)}
    files |= {f"models/{path.relative_to(models.root)}": path for path in _model_paths(plan, results, models)}
    for path in files.values():
        root = results.root if path.is_relative_to(results.root) else models.root
        path_inside(root, path.relative_to(root).as_posix())
    return {name: packed_content(path, results) for name, path in files.items() if path.is_file()}


def packed_content(path: Path, results: Results) -> bytes:
    """Content of a file; folders of this machine are removed from failed records of earlier versions."""
    if path.suffix == store.PARQUET:
        return read(path, SizeLimit.BUNDLE)
    if path.is_relative_to(results.raw) and not path.name.endswith(".usage.json"):
        with suppress(FormatError):  # a damaged file is packed unchanged: aggregate reported it
            record = store.load_raw(path)
            if isinstance(record, Failed):
                return store.passed_on_raw(record)
    return read(path, SizeLimit.RECORD)


def _warn_of_folders(files: Mapping[str, bytes]) -> None:
    texts = {
        name: content.decode(errors="replace")
        for name, content in files.items()
        if not name.endswith((".png", ".parquet"))
    }
    with_paths = [name for name, text in sorted(texts.items()) if portable_again(text) != text]
    if with_paths:
        cli.warn(
            f"{with_paths[0]}{' and others name' if len(with_paths) > 1 else ' names'} folders of this machine: an "
            "earlier version wrote them. Run `make plan` again, and measure those cases again."
        )


def _written(results: Results) -> dict[str, list[Path]]:
    """The packed files without a seal, by the stage that wrote them."""
    return {
        "plan": [results.command],
        "aggregate": [results.summary_csv],
        "report": [
            results.report,
            results.report_details,
            *results.charts.glob("*.png"),
            *results.charts.glob("*.svg"),
        ],
        "selftest": [results.selftest_table],
    }


def manifest_of(plan: Plan, files: dict[str, bytes], results: Results) -> Bundle:
    """The manifest of these files."""
    software = environment.collect({}).software
    command = read_text(results.command, SizeLimit.TEXT).strip() if results.command.is_file() else None
    return Bundle(
        plan_id=plan.plan_id,
        inferometer=software.inferometer,
        git_commit=software.git_commit,
        git_dirty=software.git_dirty,
        images=_images(results),
        command=command,
        files=tuple(
            BundledFile(path=name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
            for name, content in sorted(files.items())
        ),
    )


def _result_paths(plan: Plan, results: Results) -> Iterator[Path]:
    yield from (results.plan, results.command, results.roof, results.selftest, results.selftest_table)
    yield from (results.summary, results.packed_rows, results.summary_csv, results.report, results.report_details)
    yield from (results.packed_raw(slug) for slug in dict.fromkeys(case.slug for case in plan.cases))
    yield from (*results.charts.glob("*.png"), *results.charts.glob("*.svg"))
    yield from map(results.written, ("plan", "selftest"))
    yield from results.environments.glob("*.json")
    for planned in plan.models:
        yield from results.export(planned.slug).root.glob("*.json")
    for case in plan.cases:
        yield from results.raw_case(case.case_id).glob("*.json")
        yield results.energy_file(case.case_id)
        yield from (results.model_profile(case.case_id), results.parts_profile(case.case_id))
    for slug in dict.fromkeys(case.slug for case in plan.generations):
        yield from results.export(slug).root.glob("*.json")
    for generation in plan.generations:
        yield from results.of_generation.raw_case(generation.case_id).glob("*.json")
        yield results.energy_file(generation.case_id)
    for load in plan.loads:
        yield from results.load(load.load_id).records()


def _model_paths(plan: Plan, results: Results, models: Models) -> Iterator[Path]:
    for model in plan.models:
        folder = models.folder(model.slug)
        if not results.export(model.slug).record.is_file():
            yield folder.record
        yield from folder.engines.glob("*.json")


def _checkout_files(plan: Plan) -> dict[str, bytes]:
    """The configuration as planned and the lock file; a warning names each that is no longer available."""
    files = {}
    config = Path(plan.config).expanduser()
    if config.is_file() and store.sha256_file(config) == plan.config_sha256:
        files["config.yaml"] = read(config, SizeLimit.TEXT)
    else:
        cli.warn(f"{config} has changed since the plan; the bundle leaves it out. The plan has the cases.")
    lock = _CHECKOUT / _LOCKS[plan.device]
    if lock.is_file():
        files[lock.name] = read(lock, SizeLimit.TEXT)
    else:
        cli.warn(f"There is no {lock.name} beside this installation; the bundle goes without it.")
    return files


def _images(results: Results) -> tuple[str, ...]:
    machine_limits = []
    for path in results.environments.glob("*.json"):
        with suppress(FormatError):  # as above
            machine_limits.append(store.load(path, Environment, "make run").limits)
    return tuple(sorted({limits.image_digest or limits.image or "" for limits in machine_limits} - {""}))


if __name__ == "__main__":
    cli.main(stage)
