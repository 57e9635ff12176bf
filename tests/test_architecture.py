"""The rules that no linter holds: imports, the clock, backend names, who prints."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from harness.backends import BACKENDS
from tests.fixtures.forked import run_forked

ROOT = Path(__file__).parents[1]
HARNESS = ROOT / "harness"
FILES = sorted(HARNESS.rglob("*.py"))
STAGES = [path for path in FILES if "cli.main(" in path.read_text() and path != HARNESS / "core/cli.py"]
BESIDE = {"worker", "profile_worker", "monitor", "watch", "models", "selftest", "spread", "reproduce", "ab"}
"""Processes that `run` starts, a view of it, a list for the reader, a test of the harness, stages on several cards, all
stages for a claim or for two states: no stations of the data's way."""
KNOWN_DURATION = {"spin", "slowdown"}
"""Work that is defined by how long it takes cannot do without the clock; it uses the one of timing/clock.py."""
OWN_EXITS = (HARNESS / "processes/worker.py", HARNESS / "core/host/orphans.py")
"""A process of a case leaves by os._exit: exit handlers in it belong to the server that it was forked from."""
CLOCKS = {
    *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time"),
    *("process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=named)


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        return tuple(ast.walk(ast.parse(path.read_text())))


def lines_of(found: list[ast.AST]) -> list[int]:
    return [getattr(node, "lineno", 0) for node in found]


def offences(paths: Iterable[Path], rule: Callable[[ast.AST], bool]) -> list[str]:
    """`file:line` of each place that breaks a rule."""
    return [f"{named(path)}:{getattr(node, 'lineno', 0)}" for path in paths for node in nodes(path) if rule(node)]


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def reads_a_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
        return node.attr in CLOCKS
    return isinstance(node, ast.ImportFrom) and node.module in ("time", "timeit")


def test_only_the_clock_module_reads_a_clock() -> None:
    assert offences((path for path in FILES if path != HARNESS / "timing/clock.py"), reads_a_clock) == []


def test_the_clock_rule_sees_a_clock() -> None:
    source = "import time\nfrom time import perf_counter\ntime.perf_counter()\ntime.sleep(1)\n"
    results = [node for node in ast.walk(ast.parse(source)) if reads_a_clock(node)]
    assert sorted(lines_of(results)) == [2, 3]


def imported(path: Path) -> set[str]:
    whole = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    return whole | {node.module or "" for node in nodes(path) if isinstance(node, ast.ImportFrom)}


def test_a_backend_knows_no_clock_at_all() -> None:
    backends = [path for path in FILES if HARNESS / "backends" in path.parents and not path.stem.startswith("profile")]
    assert backends
    for path in backends:
        ours = set() if path.stem in KNOWN_DURATION else {"harness.timing.clock"}
        assert not imported(path) & {"time", "timeit", "datetime", *ours}, named(path)


def compares_a_backend(node: ast.AST) -> bool:
    compared: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        compared = [node.left, *node.comparators]
    elif isinstance(node, ast.MatchValue):
        compared = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        compared = list(node.args)
    inner = [part for entry in compared for part in ast.walk(entry)]
    return any(isinstance(part, ast.Constant) and part.value in BACKENDS for part in inner)


def test_generic_code_compares_no_backend_by_name() -> None:
    assert offences((path for path in FILES if path.parent != HARNESS / "backends"), compares_a_backend) == []


def test_the_name_rule_sees_a_comparison() -> None:
    source = "a == 'noop'\nb in ('openvino', 'x')\nc = 'noop'\nmatch d:\n    case 'torch-eager': pass\n"
    results = [node for node in ast.walk(ast.parse(source)) if compares_a_backend(node)]
    assert sorted(lines_of(results)) == [1, 2, 5]


def leaves_or_prints(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("print", "exit", "quit", "SystemExit", "breakpoint")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func) in ("sys.exit", "os._exit", "os.abort", "sys.stdout.write", "sys.stderr.write")
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id == "SystemExit"


def test_only_the_shell_prints_and_leaves() -> None:
    others = (path for path in FILES if path not in (HARNESS / "core/cli.py", *OWN_EXITS))
    assert offences(others, leaves_or_prints) == []


@each(list(OWN_EXITS))
def test_a_process_of_a_case_leaves_only_by_os_exit(path: Path) -> None:
    results = [ast.unparse(node) for node in nodes(path) if leaves_or_prints(node)]
    assert results
    assert all(call.startswith("os._exit(") for call in results)


@each([path for path in STAGES if path.stem != "models"])
def test_a_stage_names_its_inputs_and_outputs(path: Path) -> None:
    first, *rest = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    assert first.endswith(".")
    assert any(line.startswith("reads ") for line in rest)
    assert any(line.startswith("writes ") for line in rest)


def test_every_stage_of_the_drawing_is_a_module_and_the_other_way_round() -> None:
    drawing = (HARNESS / "__init__.py").read_text()
    stages = {path.stem for path in STAGES} - BESIDE
    assert stages >= {"plan", "export", "run", "aggregate", "report"}
    assert all(f"│ {name} " in drawing for name in stages)


def started(path: Path, argument: str) -> subprocess.CompletedProcess[str]:
    """A stage in a fork; each has a test in a fresh interpreter too (tests/integration)."""
    typed = {name: value for name, value in os.environ.items() if name != "INFEROMETER_FRONT"}
    return run_forked(module_of(path), [argument], ROOT, typed)


@each(STAGES)
def test_every_stage_helps_and_leaves_with_zero(path: Path) -> None:
    done = started(path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {module_of(path)}" in done.stdout


@each(STAGES)
def test_every_stage_refuses_an_unknown_option_in_two_lines(path: Path) -> None:
    done = started(path, "--no-such-option")
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith("Error: ")
    assert hint == f"Hint:  python -m {module_of(path)} --help"


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert [named(path) for path in FILES if path.stem in ("utils", "helpers", "common", "misc")] == []


OWN_NAMES = (HARNESS / "backends", HARNESS / "zoo/families")
"""Each library below may have its runtime, its profile, its decoder."""


def test_no_file_name_has_two_meanings() -> None:
    shared = [path for path in FILES if path.stem != "__init__" and not any(own in path.parents for own in OWN_NAMES)]
    assert [name for name, times in Counter(path.stem for path in shared).items() if times > 1] == []


def test_no_public_class_name_has_two_meanings() -> None:
    shared = [path for path in FILES if HARNESS / "zoo/families" not in path.parents]
    classes = [node.name for path in shared for node in nodes(path) if isinstance(node, ast.ClassDef)]
    assert [name for name, times in Counter(classes).items() if times > 1 and not name.startswith("_")] == []


def test_times_in_messages_are_written_by_one_function() -> None:
    """`{ns / 1e6:.3g} ms` writes 1.5e+03 ms for 1.5 s and 9e-05 ms for 90 ns; units.duration writes neither."""
    by_hand = re.compile(r"\.\dg\} (ns|µs|ms|s)\b")
    assert [named(path) for path in FILES if by_hand.search(path.read_text())] == []
    assert by_hand.search('f"{median / 1e6:.3g} ms"')


def test_names_of_tests_follow_the_table_of_words() -> None:
    """The words of CONTRIBUTING.md that no name needs in another meaning."""
    wrong = re.compile(r"_(told|tells?|stands?|nobody|somebody|whoever|anew|what|whatever|meanwhile)(?!_if)(_|$)")
    paths = (ROOT / "tests").rglob("*.py")
    names = [name for path in paths for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    assert len(names) > 1000
    assert [name for name in names if wrong.search(name)] == []
