"""What the documents say exists: targets, stages, variables, files, links; and what the Makefile prints."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from harness.backends import BUILT_IN
from harness.core.schemas import Kind
from harness.pipeline import BY_NAME, PIPELINES, stages_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [
    path
    for path in (README, CONTRIBUTING, *sorted(ROOT.glob("docs/**/*.md")), ROOT / "configs/README.md")
    if path.is_file()
]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
VARIABLES = set(re.findall(r"^([A-Z_]+) +\?=", MAKEFILE, re.MULTILINE))
GENERATED = {"models", "results", "build", "__pycache__"}
"""Made by stages, and ignored by git but for a placeholder."""

needs_readme = pytest.mark.skipif(not README.is_file(), reason="README.md is not there; write it")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(page: Path) -> str:
    """Fenced blocks and inline code: where commands are."""
    text = page.read_text()
    fenced = re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^ *```[^\n]*\n.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"`([^`]+)`", rest)])


@needs_readme
def test_the_readme_shows_both_commands() -> None:
    assert "make bench" in code(README)
    assert "make test" in code(README)


def test_every_make_command_has_its_target() -> None:
    for page in PAGES:
        commands = re.findall(r"(?:^|[\s;&(])make((?: +[\w=,./:@-]+)+)", code(page), re.MULTILINE)
        words = [word for command in commands for word in command.split()]
        targets = {word for word in words if "=" not in word and re.fullmatch(r"[a-z]+(-[a-z]+)*", word)}
        assert targets <= TARGETS, named(page)


def test_every_stage_that_is_named_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"python -m harness\.(\w+)", page.read_text()):
            assert (ROOT / f"harness/{name}.py").is_file(), (named(page), name)


def test_every_import_of_a_notebook_and_of_a_document_exists() -> None:
    sources = [
        ("".join(cell["source"]), path)
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    sources += [
        (text, page) for page in PAGES for text in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    imports = [
        (match[1], name.strip(), path)
        for text, path in sources
        for match in re.finditer(r"^(?:>>> )?from (harness[\w.]*) import (.+)$", text, re.M)
        for name in match[2].split(",")
    ]
    assert len({path for _, _, path in imports}) > 4
    missing = [
        f"{named(path)}: {module}.{name}"
        for module, name, path in imports
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []


def test_every_variable_of_a_make_command_exists() -> None:
    for page in PAGES:
        lines = [line for line in code(page).splitlines() if re.search(r"(^|\s)make( |$)", line)]
        used = {name for line in lines for name in re.findall(r"(?<!\S)([A-Z][A-Z_]+)=", line.partition("make ")[2])}
        assert used <= VARIABLES, named(page)


def test_every_link_and_image_leads_somewhere() -> None:
    broken = [f"{named(page)}: {target}" for page in PAGES for target in targets_of(page) if not leads(page, target)]
    assert broken == []


def targets_of(page: Path) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)
    result = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"""(?:src|href|srcset)=["']([^"'\s]+)""", text)
    return [target for target in result if not re.match(r"[a-z]+:", target)]


def leads(page: Path, target: str) -> bool:
    file, _, anchor = target.partition("#")
    result = (page.parent / file).resolve() if file else page
    return result.exists() and (not anchor or result.suffix != ".md" or anchor in anchors(result))


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def drawn_tree() -> list[tuple[int, list[str]]]:
    """(indentation, names) of each line of the tree block of CONTRIBUTING: a user of the README needs no tree."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", CONTRIBUTING.read_text(), re.MULTILINE | re.DOTALL)
    tree = [block for block in blocks if block.startswith(("Makefile", "inferometer/"))]
    assert len(tree) == 1, "one fenced block that starts with `Makefile` or `inferometer/`"
    lines = []
    for line in tree[0].splitlines():
        branch = re.match(r"[\s│├└─]*", line)
        indent = branch.end() if branch else 0
        names = re.split(r" {2,}|\s#|←|·", line[indent:])[0]
        if names.strip():
            lines.append((indent, names.split()))
    if lines[0][1] == ["inferometer/"]:
        lines = lines[1:]
    return lines


def tracked(folder: Path) -> set[str]:
    """Names in a folder that git knows or would take; folders end in a slash."""
    command = ["git", "-C", str(folder), "ls-files", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    first = {name.split("/")[0] + ("/" if "/" in name else "") for name in listed if (folder / name).exists()}
    return {name for name in first if not name.startswith(".")}


def test_the_tree_is_the_real_one() -> None:
    lines = drawn_tree()
    top = min(indent for indent, _ in lines)
    at_top = {name for indent, names in lines if indent == top for name in names if not name.startswith(".")}
    assert at_top - {f"{name}/" for name in GENERATED} == tracked(ROOT) - {f"{name}/" for name in GENERATED}
    below: set[str] = set()
    inside = False
    inner = None
    for indent, names in lines:
        if indent == top:
            inside, inner = "harness/" in names, None
        elif inside:
            inner = indent if inner is None else inner
            if indent == inner:
                below |= set(names)
    assert below - {"__init__.py"} == tracked(ROOT / "harness") - {"__init__.py"}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # The tests may themselves be run by Make, whose variables must not reach this one.
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *VARIABLES}
    env = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=env, check=False, capture_output=True, text=True)  # noqa: S607


def test_help_is_the_default_and_lists_every_target_and_variable() -> None:
    done = make()
    assert (done.returncode, done.stderr) == (0, "")
    listed = dict(re.findall(r"^  (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    assert TARGETS - {"where"} <= set(listed)
    assert VARIABLES - {"PYTHON"} <= set(listed)
    assert all(text.strip() for text in listed.values())
    assert make("help").stdout == done.stdout


def test_help_says_of_each_variable_which_targets_read_it() -> None:
    targets_of = {stage: stage for stage in TARGETS} | {"build_engine": "engines", "profile_ops": "profile"}
    group, seen = "", set()
    for line in make("help").stdout.splitlines():
        if re.match(r"[A-Z][a-z ]+", line):
            group = line
        name = line.split()[0] if line.startswith("  ") else ""
        if name in BY_NAME:
            seen.add(name)
            reading = {targets_of[stage] for stage in BY_NAME[name].stages if stage in targets_of}
            reading |= {
                command for command in PIPELINES if not reading.isdisjoint(map(targets_of.get, stages_of(command)))
            }
            for target in reading:
                assert re.search(rf"\b({target}|every target that runs a stage)\b", f"{group} {line}"), (name, target)
    assert seen == set(BY_NAME)


def test_an_unknown_value_of_where_is_two_lines() -> None:
    for way, words in (("docker", "No container engine answers"), ("nowhere", "WHERE=nowhere is not known")):
        done = make("models", f"WHERE={way}", "DOCKER=no-such-engine")
        said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
        assert done.returncode == 2
        assert [line.split(":")[0] for line in said] == ["Error", "Hint"]
        assert words in said[0]


def test_values_never_reach_a_shell(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    make(
        "plan",
        f"MODELS=$$(touch {trap})`touch {trap}`;touch {trap}",
        f"RESULTS={tmp_path}",
        "WHERE=local",
        "-o",
        ".venv/.installed",
    )
    assert not trap.exists()


def test_clean_keeps_published_results_and_accepts_an_absent_folder(tmp_path: Path) -> None:
    for name in ("published/a.md", "raw/case/1.json", "plan.json", ".lock"):
        file = tmp_path / "results" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert make("clean", f"RESULTS={tmp_path / 'results'}").returncode == 0
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["published"]
    assert make("clean", f"RESULTS={tmp_path / 'absent'}").returncode == 0


def test_clean_does_not_empty_a_folder_that_no_stage_wrote(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = make("clean", f"RESULTS={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"Error: {tmp_path} is no folder of results: it has no plan.json, or it is a checkout."
    )
    (tmp_path / "plan.json").touch()
    (tmp_path / ".git").mkdir()
    assert make("clean", f"RESULTS={tmp_path}").returncode == 2
    assert (tmp_path / "thesis.tex").exists()


def settings_table() -> str:
    rows = []
    for backend, info in BUILT_IN.items():
        for device in info.settings:
            for name, setting in info.settings_on(device).items():
                kinds = "all" if len(setting.kinds) == len(get_args(Kind)) else ", ".join(setting.kinds)
                tried = "yes" if setting.tried else "no"
                if setting.precisions:
                    kinds += f", in {', '.join(setting.precisions)}"
                where = {"cpu": "CPU", "cuda": "GPU"}[device]
                rows.append(f"| `{backend}` | {where} | `{name}` | {setting.summary} | {kinds} | {tried} |")
    head = ["| backend | on a | setting | what it is | models | tried by `TUNE=1` |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def test_every_setting_is_in_the_documentation() -> None:
    text = (ROOT / "configs/README.md").read_text()
    result = re.search(r"<!-- settings -->\n(.*?)\n?<!-- /settings -->", text, re.DOTALL)
    assert result is not None
    assert result[1] == settings_table()
