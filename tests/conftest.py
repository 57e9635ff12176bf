"""Order of test files, seconds of parts, CPU seconds of files, and what no test may leave behind for those after it.

`make test` runs files side by side (pytest-xdist, --dist loadfile); which files share a process differs each time.
"""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

# Threads of OpenMP spin while they wait: two test processes on two cores would spend most of their time on that.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Hints have the words of Make, as in the code; tests of other interfaces set their own.
os.environ["INFEROMETER_FRONT"] = "make"
# Collections of garbage would search libraries and tests again and again: see pytest_collection_finish.
gc.disable()

TESTS = Path(__file__).parent
LONG_FIRST = ("integration", "browser", "security")
"""Folders of long files: a long file that begins last would run alone at the end."""
OLD_OBJECTS = 50_000
"""So many are searched in a few milliseconds."""
SILENT_S = 1_500
"""Ends the main process of pytest-xdist where no test ends for so long: a test that hangs ends its own process earlier
(HANGING in the Makefile)."""
FAKED = ("tensorrt", "pycuda", "pynvml", "cuda", "openvino", "onnxruntime")


@pytest.fixture(autouse=True)
def _no_fake_is_left() -> Iterator[None]:
    """A fake library that outlives its test breaks the imports of those that follow in the same process."""
    before = set(sys.modules)
    yield
    left = [name for name in FAKED if getattr(sys.modules.get(name), "__spec__", sys) is None]
    for name in left:
        del sys.modules[name]
    new = [name for name in sys.modules if name not in before and name.startswith("harness.")]
    # One that holds a forgotten module is stale as well.
    while stale := [name for name in new if name in sys.modules and _is_stale(sys.modules[name])]:
        _forget(stale)
    assert not left, f"fakes left in sys.modules: {left}"


@pytest.fixture(autouse=True)
def _old_objects_are_not_searched_again() -> Iterator[None]:
    """What a test imported, or what it made visible to the collector again (gc.unfreeze), would be searched at every
    collection of later tests: a second each time.
    """
    yield
    if len(gc.get_objects(generation=2)) > OLD_OBJECTS:
        gc.freeze()


@pytest.fixture(autouse=True)
def _variables_and_folder_are_put_back() -> Iterator[None]:
    """What a stage sets for its own process (cli.main, torch) would be inherited by what later tests start."""
    variables, folder = dict(os.environ), Path.cwd()
    yield
    for name in {*os.environ} - {*variables, "PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if name != "PYTEST_CURRENT_TEST"})
    os.chdir(folder)


@pytest.fixture(autouse=True)
def _inference_mode_ends() -> Iterator[None]:
    """A backend of PyTorch enters inference mode until it is closed. One whose load failed is freed as garbage, which
    is looked for seldom: the next test of the process would still be in that mode.
    """
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.is_inference_mode_enabled():
        gc.collect()
        assert not torch.is_inference_mode_enabled(), "a backend of PyTorch was neither closed nor freed"


def _is_stale(module: ModuleType) -> bool:
    """Whether a module holds another module or class than the one that an import finds now: it was imported with a fake
    library in place.
    """
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is not value:
            return True
        if isinstance(value, type) and value.__module__.startswith("harness.") and value.__name__ == value.__qualname__:
            home = sys.modules.get(value.__module__)
            if home is None or getattr(home, value.__name__, value) is not value:
                return True
    return False


def _forget(names: list[str]) -> None:
    """Let the next import of each load it again."""
    for name in names:
        module, (package, _, short) = sys.modules.pop(name), name.rpartition(".")
        if getattr(sys.modules.get(package), short, None) is module:
            delattr(sys.modules[package], short)


def pytest_configure(config: pytest.Config) -> None:
    """Half as many random examples a rule where slow tests are left out; never a limit on how long one takes."""
    settings.register_profile(
        "inferometer", deadline=None, max_examples=50 if "not slow" in config.option.markexpr else 100
    )
    settings.load_profile("inferometer")
    sys.addaudithook(_no_signal_to_all_tests)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="inferometer-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        # Where all processes of these tests meet the server of forked stages (tests/fixtures/forked.py).
        os.environ["INFEROMETER_TESTS"] = f"{os.getpid()} {folder}"
        config.pluginmanager.register(_NamesOfFailures(config))
        if config.getoption("numprocesses", None):
            config.pluginmanager.register(_MainProcess())


def _no_signal_to_all_tests(event: str, arguments: tuple[object, ...]) -> None:
    """Process 0 is the own group, -1 every process: one SIGSTOP there would also stop what ends tests that hang."""
    if event in ("os.kill", "os.killpg") and isinstance(arguments[0], int) and arguments[0] <= 0:
        raise RuntimeError(f"{event} of process {arguments[0]} would reach all tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(_part(item.nodeid)))


def pytest_collection_finish() -> None:
    """From here on garbage is collected, in what tests create; seldom, which takes a sixth less CPU time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


class _NamesOfFailures:
    """Prints a test's name as soon as it fails: a run that is stopped before its summary has named it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            # With pytest-xdist the letters of tests have no file before them, and pytest takes them for no line.
            terminal.write("\n") if self._config.getoption("numprocesses", None) else terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"))
            terminal.flush()


class _MainProcess:
    """Of pytest-xdist: ends with its stack where no test ends for SILENT_S."""

    def pytest_runtest_logreport(self) -> None:
        faulthandler.dump_traceback_later(SILENT_S, exit=True)

    def pytest_sessionfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()


def pytest_xdist_auto_num_workers() -> int:
    """Processes of `make test`: 1.5 times the CPUs, since tests of kills and time limits mostly wait; 6 at most."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(6, math.ceil(1.5 * cpus))


_CPU_S = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_CPU_S] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "teardown" and _CPU_S in item.stash:
        spent = _cpu_s() - item.stash[_CPU_S]
        report.user_properties.append(("cpu_s", max(0.0, spent)))  # what a killed process started is lost
    return report  # type: ignore[return-value]


def _cpu_s() -> float:
    """CPU seconds of this process, of all that it started, as a browser that still runs, and of forked stages."""
    times, forked = os.times(), sys.modules.get("tests.fixtures.forked")
    return sum(times[:4]) + sum(_living_s(pid) for pid in _children("self")) + (forked.spent_s if forked else 0.0)


def _children(process: int | str) -> list[int]:
    """Process ids of the living children of a process; none where the system does not list them."""
    results = []
    with suppress(OSError):  # a thread or the process may end meanwhile
        for thread in os.scandir(f"/proc/{process}/task"):
            results += map(int, Path(thread.path, "children").read_text().split())
    return results


def _living_s(pid: int) -> float:
    """CPU seconds of a process and of all that it started: proc(5), counted from the end of the name."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(map(_living_s, _children(pid)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds of the tests of each part, added up over all processes, and the files that cost most CPU time.

    CPU seconds can be compared on a busy machine as well.
    """
    seconds, cpu = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_part(report.nodeid)] += report.duration  # type: ignore[assignment]
                cpu[report.nodeid.partition("::")[0]] += dict(report.user_properties).get("cpu_s", 0)  # type: ignore[assignment]
    said = ", ".join(f"{part} {spent:.0f}" for part, spent in seconds.most_common())
    if said:
        terminalreporter.write_line(f"Seconds of tests, by part: {said}")
        costly = "".join(f"\n  {spent:6.1f}  {file}" for file, spent in cpu.most_common(25) if spent >= 1)
        terminalreporter.write_line(f"CPU seconds of tests, {sum(cpu.values()):.0f} in all; of files:{costly}")


def _part(nodeid: str) -> str:
    """The folder below tests/, or the file that lies there."""
    return nodeid.partition("::")[0].removeprefix("tests/").partition("/")[0]


def _turn(folder: str) -> int:
    return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)
