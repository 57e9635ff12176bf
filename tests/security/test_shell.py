"""No value from a command line, environment or configuration is ever read by a shell, nor by Make itself."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import pipeline
from harness.core.host import environment

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "harness").rglob("*.py"))
MAKEFILE = (ROOT / "Makefile").read_text()
VARIABLES = tuple(re.findall(r"^([A-Z_]+) *\?=", MAKEFILE, flags=re.MULTILINE))
"""Each variable of the Makefile: a new one cannot be forgotten here."""
ATTACKS = ("$(shell touch {trap})", "$(touch {trap})", "; touch {trap}", "`touch {trap}`", '"; touch {trap}; "')


def make(
    target: str, values: dict[str, str], by_environment: bool = False, *flags: str
) -> subprocess.CompletedProcess[str]:
    """`make target` with system Python, so that nothing is installed."""
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"}
    env = {name: value for name, value in os.environ.items() if name not in outer}
    words = [f"{name}={value}" for name, value in values.items()]
    command = ["make", "WHERE=local", "-o", ".venv/.installed", target, *flags, *([] if by_environment else words)]
    env |= values if by_environment else {}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("attack", "by_environment"),
    [
        *((attack, False) for attack in ATTACKS),
        (ATTACKS[0], True),
        *(pytest.param(attack, True, marks=pytest.mark.slow) for attack in ATTACKS[1:]),
    ],
)
def test_no_make_variable_runs_a_command(attack: str, by_environment: bool, tmp_path: Path) -> None:
    # WHERE and PYTHON decide which program starts: they have a test of their own.
    names = [name for name in VARIABLES if name not in ("WHERE", "PYTHON")]
    values = {name: attack.format(trap=tmp_path / f"trap-{name}") for name in names}
    done = make("plan", {**values, "RESULTS": str(tmp_path / "results")}, by_environment)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by_environment", [False, True], ids=["argument", "environment"])
@pytest.mark.parametrize("names", [VARIABLES, [name for name in VARIABLES if name != "CARDS"]], ids=["all", "one card"])
def test_make_expands_no_variables(names: Sequence[str], by_environment: bool, tmp_path: Path) -> None:
    make("bench", {name: f"$(shell touch {tmp_path / name})" for name in names}, by_environment, "--dry-run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by_environment", [False, True], ids=["argument", "environment"])
@pytest.mark.parametrize(
    "name",
    [
        *("SUITE", "VENV", "LOCK", "FOUND_PYTHON", "IF_FIT", "RUN", "RUNS", "PYTHONS"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in VARIABLES),
    ],
)
def test_make_expands_no_variable(name: str, by_environment: bool, tmp_path: Path) -> None:
    # Make expands the recipes of a dry run as it does those of a real one, and starts nothing of them.
    trap = tmp_path / "trap"
    make("bench", {name: f"$(shell touch {trap})"}, by_environment, "--dry-run")
    assert not trap.exists()


@pytest.mark.parametrize(("name", "meant"), [("MODEL", "MODELS"), ("models", "MODELS"), ("ROUND", "ROUNDS")])
def test_a_misspelt_variable_is_an_error(name: str, meant: str, tmp_path: Path) -> None:
    done = make("plan", {name: "x", "RESULTS": str(tmp_path / "results")})
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        f"Error: there is no variable {name}.",
        f"Hint:  Did you mean {meant}? `make` alone lists all of them.",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("plna", "Did you mean plan? `make` alone lists all of them."),
        ("Bench", "Did you mean bench? `make` alone lists all of them."),
        ("x'y; touch trap", "`make` alone lists all of them."),
    ],
)
def test_a_misspelt_target_is_an_error(target: str, hint: str) -> None:
    done = make(target, {})
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [f"Error: there is no target {target}.", f"Hint:  {hint}"]
    assert not (ROOT / "trap").exists()


@pytest.mark.parametrize("by_environment", [False, True], ids=["argument", "environment"])
def test_a_switch_with_0_is_off(by_environment: bool) -> None:
    switches = [variable for variable in pipeline.VARIABLES if variable.switch]
    for value, on in (("1", True), ("0", False), ("no", False)):
        chosen = {variable.name: value for variable in switches}
        words = make("plan", chosen, by_environment, "run", "report", "compare", "watch", "--dry-run").stdout.split()
        assert [variable.option in words for variable in switches] == [on] * len(switches)


@pytest.mark.parametrize("value", ["no-such-python", "/no/such/python", "README.md"])
def test_a_python_that_does_not_start_is_an_error(value: str) -> None:
    done = make("plan", {"PYTHON": value, "WHERE": "system"})
    assert done.stderr.splitlines()[:2] == [
        f"Error: {value} is no command: Python 3.11 to 3.13 is needed.",
        "Hint:  Install one, or name it: PYTHON=/path/to/python3.",
    ]


@pytest.mark.parametrize(("old", "new"), [("RUN", "WHERE"), ("RUNS", "PROFILE_RUNS"), ("PYTHONS", "BACKEND_PYTHONS")])
@pytest.mark.parametrize("by_environment", [False, True], ids=["argument", "environment"])
def test_the_earlier_names_of_variables_still_work(old: str, new: str, by_environment: bool, tmp_path: Path) -> None:
    rules = tmp_path / "Makefile"
    rules.write_text(f'{MAKEFILE}\nshow:\n\t@printf %s "$${new}"\n')
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", new}
    env = {name: value for name, value in os.environ.items() if name not in outer}
    value = "$(shell touch trap) x"
    command = ["make", "-f", str(rules), "show", *([] if by_environment else [f"{old}={value}"])]
    env |= {old: value} if by_environment else {}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == value
    assert not (tmp_path / "trap").exists()


def test_a_path_with_spaces_is_one_path(tmp_path: Path) -> None:
    config = tmp_path / "my config.yaml"
    config.write_text((ROOT / "configs/smoke.yaml").read_text())
    done = make("plan", {"CONFIG": str(config), "RESULTS": str(tmp_path / "my results")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my results" / "plan.json").is_file()


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("aggregate", "RESULTS"),
        ("compare", "BASELINE"),
        *(pytest.param(*way, marks=pytest.mark.slow) for way in (("verify", "BUNDLE"), ("bundle", "MODELS_DIR"))),
    ],
)
def test_no_folder_name_runs_a_command(target: str, name: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    attack = f"{tmp_path}/$(touch {trap});touch {trap}"
    done = make(target, {"RESULTS": str(tmp_path), name: attack})
    assert done.returncode != 0
    assert not trap.exists()


def test_make_finds_a_python_without_an_environment(tmp_path: Path) -> None:
    """The virtual environment of a clean clone is made by this one."""
    rule = 'probe: ; @"$(PYTHON)" -c "import sys; print(sys.version_info[:2])"'
    probe = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "--eval", rule, "probe"]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MFLAGS")}
    version = subprocess.run(probe, cwd=tmp_path, env=clean, capture_output=True, text=True, check=True).stdout
    assert (3, 11) <= ast.literal_eval(version) < (3, 14)


@pytest.mark.parametrize("value", ["--list", "--results=elsewhere", "-x"])
def test_a_value_does_not_become_an_option(value: str, tmp_path: Path) -> None:
    done = make("plan", {"CONFIG": "configs/smoke.yaml", "RESULTS": str(tmp_path), "MODELS": value})
    assert done.returncode == 2
    assert done.stderr.startswith("Error: MODELS has no value, or one with a leading dash.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_shell_variable_in_a_value_is_text(tmp_path: Path) -> None:
    done = make("plan", {"CONFIG": "configs/smoke.yaml", "RESULTS": str(tmp_path), "MODELS": "$HOME"})
    assert "Unknown model `$HOME`." in done.stderr


FORBIDDEN = {
    *("os.system", "os.popen", "eval", "exec", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("pickle.load", "pickle.loads", "yaml.unsafe_load", "yaml.full_load", "shelve.open", "marshal.loads"),
}


HANDED_OVER = "harness/zoo/families/pickled_module.py"
"""Reads what harness.api wrote, by digest and never by path: tests/integration/test_api_handover.py."""


def dangers(source: str) -> list[str]:
    """Calls that hand text to a shell or turn data into code."""
    results = []
    for node in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        called = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called in FORBIDDEN or given.get("shell", "False") != "False":
            results.append(called)
        if given.get("allow_pickle", "False") != "False" or given.get("trust_remote_code", "False") != "False":
            results.append(called)
        if called in ("torch.load", "torch.hub.load_state_dict_from_url") and given.get("weights_only") != "True":
            results.append(called)
        if called == "np.load" and "allow_pickle" not in given:
            results.append(called)
        if called == "yaml.load" and given.get("Loader") != "_StrictLoader":
            results.append(called)
    return results


def test_no_source_calls_a_shell_or_loads_code_from_data() -> None:
    results = {str(path.relative_to(ROOT)): calls for path in SOURCES if (calls := dangers(path.read_text()))}
    assert results == {HANDED_OVER: ["pickle.loads"]}


def test_the_rule_detects_a_forbidden_call() -> None:
    source = (
        "os.system(x)\nsubprocess.run(x, shell=True)\ntorch.load(x)\nnp.load(x)\nyaml.load(x)\npickle.loads(x)\n"
        "f(trust_remote_code=asked)\nnp.load(x, allow_pickle=True)\n"
    )
    assert len(dangers(source)) == 8


def test_git_is_asked_with_fixed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert "shell" not in options
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "abc\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    environment.collect({})
    assert all(command[:2] == ["git", "-C"] for command in asked if command[0] == "git")
