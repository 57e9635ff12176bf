"""Entries that installed packages bring for the table of backends: found, checked, refused by name."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import backends
from harness.backends import BUILT_IN, backend_info
from harness.backends.plugins import GROUP, PluginTable
from harness.core.errors import ConfigError
from harness.core.host import environment
from harness.core.plugin_discovery import installed
from tests.fixtures.plugins import write_metadata, write_plugin

ROOT = Path(__file__).parents[3]
ENTRY = (
    "from harness.backends import BackendInfo\n"
    "FINE = BackendInfo('m:C', 'a summary', (), (), {'cpu': ('fp32',)}, 'onnx', distributions=('numpy', 'absent'))\n"
    "def made(): return FINE\n"
)


def plug(site: Path, module: str, name: str = "new", to: str = "FINE", code: str = ENTRY) -> PluginTable:
    """A table with one package installed; `module` is new in each test, as Python keeps what it imported."""
    write_plugin(site, module, code, {GROUP: {name: f"{module}:{to}"}})
    return PluginTable(BUILT_IN)


def problem(table: PluginTable, name: str = "new") -> str:
    assert name not in table or name in BUILT_IN
    (refused,) = table.refused(name)
    assert refused in table.all_refused()
    assert "docs/plugins.md" in refused.hint
    return refused.problem


@pytest.mark.parametrize("to", ["FINE", "made"])
def test_an_entry_is_behind_the_built_in_ones(site: Path, to: str) -> None:
    table = plug(site, f"plugin_{to.lower()}_entry", to=to)
    assert list(table) == [*BUILT_IN, "new"]
    assert len(table) == len(BUILT_IN) + 1
    assert table["new"].plugin == f"plugin_{to.lower()}_entry"
    assert table.all_refused() == []


def test_its_versions_are_recorded_and_a_built_in_ones_are_not(site: Path) -> None:
    info = plug(site, "plugin_recorded")["new"]
    assert info.recorded == ("plugin_recorded", "numpy", "absent")
    libraries = environment.collect({}, also=info.recorded).software.libraries
    assert libraries["plugin_recorded"] == "1.0"
    assert "absent" not in libraries
    assert environment.plugin_fact(info.plugin) == {environment.PLUGIN: "plugin_recorded 1.0"}
    assert all(entry.recorded == entry.distributions for entry in BUILT_IN.values())
    assert BUILT_IN["noop"].recorded == ()
    assert environment.plugin_fact(None) == {}


def test_a_built_in_name_stays_built_in(site: Path) -> None:
    table = plug(site, "plugin_usurper", name="noop")
    assert table["noop"] is BUILT_IN["noop"]
    assert list(table) == list(BUILT_IN)
    assert problem(table, "noop").endswith("a backend of Inferometer's own has that name.")


def test_two_packages_with_one_name_are_both_refused(site: Path) -> None:
    plug(site, "plugin_twin_a")
    table = plug(site, "plugin_twin_b")
    assert "new" not in table
    assert [entry.problem.partition(" of ")[2] for entry in table.refused("new")] == [
        f"{name} 1.0 cannot be used: plugin_twin_a 1.0 and plugin_twin_b 1.0 both have one."
        for name in ("plugin_twin_a", "plugin_twin_b")
    ]


@pytest.mark.parametrize("name", ["New", "new one", "new_one", "new--one", "n" * 41])
def test_a_name_that_files_or_tables_could_not_bear_is_refused(site: Path, name: str) -> None:
    assert "small letters" in problem(plug(site, "plugin_name", name=name), name)


BROKEN = {
    "raises": ("raise OSError('first line\\nsecond line')\n", "cannot be used: OSError: first line second line."),
    "leaves": ("raise SystemExit(3)\n", "cannot be used: SystemExit: 3."),
    "says_nothing": ("raise ValueError\n", "cannot be used: ValueError."),
    "lacks_it": ("", "AttributeError: module 'plugin_lacks_it' has no attribute 'FINE'."),
    "of_no_kind": ("FINE = 3\n", "it gives int and no BackendInfo."),
    "fails_in_call": ("def FINE(): raise KeyError('x')\n", "KeyError: 'x'."),
    "imports_torch": (
        ENTRY + "import sys, types\nsys.modules['tensorrt'] = types.ModuleType('tensorrt')\n",
        "tensorrt",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_failed_package_is_named_and_harms_no_other(site: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", types.ModuleType("tensorrt"))  # so that the end of the test undoes it
    monkeypatch.delitem(sys.modules, "tensorrt")
    code, words = BROKEN[kind]
    plug(site, f"plugin_fine_beside_{kind}", name="fine")
    table = plug(site, f"plugin_{kind}", code=code)
    said = problem(table)
    assert said.startswith(f"The backend `new` of plugin_{kind} 1.0 cannot be used: ")
    assert words in said
    assert list(table) == [*BUILT_IN, "fine"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "device": ({"precisions": {"tpu": ("fp32",)}}, "precisions.tpu"),
    "precision": ({"precisions": {"cpu": ("fp31",)}}, "precisions.cpu.0: Input should be 'fp32'"),
    "no_device": ({"precisions": {}}, "precisions: no device"),
    "no_precision": ({"precisions": {"cpu": ()}}, "precisions: no device, or a device without any"),
    "target": ({"target": "module.Class"}, "target: String should match"),
    "artifact": ({"artifact": "pt"}, "artifact: Input should be 'module', 'onnx', 'engine' or 'none'"),
    "mode": ({"modes": ("async",)}, "modes.0"),
    "dotted": ({"requires": ("a.b",)}, "requires.0"),
    "two_lines": ({"summary": "one\ntwo"}, "summary"),
    "unchecked": ({"artifact": "none"}, "computes: what loads no artifact has no reference"),
    "loads_for_nothing": ({"computes": False}, "computes: what loads no artifact has no reference"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_every_field_is_checked(site: Path, kind: str) -> None:
    change, words = WRONG[kind]
    code = f"{ENTRY}from dataclasses import replace\nFINE = replace(FINE, **{change!r})\n"
    assert words in problem(plug(site, f"plugin_wrong_{kind}", code=code))


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_entries_would_pass_the_checks(site: Path, name: str) -> None:
    code = f"from harness.backends import BUILT_IN\nFINE = BUILT_IN[{name!r}]\n"
    module = f"plugin_like_{name.replace('-', '_')}"
    assert replace(plug(site, module, code=code)["new"], plugin=None) == BUILT_IN[name]


def test_a_metadata_file_that_is_not_well_formed_is_named(site: Path) -> None:
    write_metadata(site, "torn", f"[{GROUP}]\nno equals sign\n")
    table = plug(site, "plugin_beside_torn")
    assert table["new"].plugin == "plugin_beside_torn"
    assert [entry.problem for entry in table.all_refused()] == [
        "The plugin torn 1.0 cannot be used: its entry_points.txt is not readable."
    ]
    assert installed("another.group") == ([], [])


def test_a_metadata_file_that_is_no_text_is_named_by_who_names_the_group(site: Path) -> None:
    write_metadata(site, "torn", "")
    (site / "torn-1.0.dist-info" / "entry_points.txt").write_bytes(f"[{GROUP}]\nn".encode() + b"\xff = m:f\n")
    assert installed(GROUP) == ([], ["torn 1.0"])
    assert installed("another.group") == ([], [])


def test_a_copy_further_down_the_path_is_not_read(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(site / "older", "plugin_retired", ENTRY, {GROUP: {"new": "plugin_retired:FINE"}})
    monkeypatch.syspath_prepend(site / "older")
    write_plugin(site / "newer", "plugin_retired", "", {"another.group": {"new": "plugin_retired:FINE"}}, version="2.0")
    monkeypatch.syspath_prepend(site / "newer")
    assert installed(GROUP) == ([], [])


def test_of_two_versions_on_the_path_the_first_counts(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(site / "older", "plugin_shadowed", ENTRY, {GROUP: {"new": "plugin_shadowed:FINE"}})
    monkeypatch.syspath_prepend(site / "older")
    write_plugin(site / "newer", "plugin_shadowed", ENTRY, {GROUP: {"new": "plugin_shadowed:FINE"}}, version="2.0")
    monkeypatch.syspath_prepend(site / "newer")
    assert [point.origin for point in installed(GROUP)[0]] == ["plugin_shadowed 2.0"]


def test_a_plan_with_a_failed_plugin_gets_its_two_lines(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "BACKENDS", plug(site, "plugin_asked", code="raise OSError('gone')\n"))
    with pytest.raises(ConfigError, match=r"`new` of plugin_asked 1.0 cannot be used: OSError: gone"):
        backend_info("new")
    with pytest.raises(ConfigError, match="Unknown backend `nwe`") as caught:
        backend_info("nwe")
    assert caught.value.hint.endswith(f"A plugin's backend has to be installed in {sys.executable}.")


def test_a_process_that_measures_a_built_in_backend_reads_no_plugin(site: Path) -> None:
    plug(site, "plugin_bystander")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from harness.backends import BACKENDS, backend_info\n"
        "backend_info('noop')\n"
        "assert 'plugin_bystander' not in sys.modules\n"
        "assert 'new' in BACKENDS and 'plugin_bystander' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_a_plugins_own_module_may_be_imported_first(site: Path) -> None:
    plug(site, "plugin_first")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import plugin_first\n"
        "from harness.backends import BACKENDS\n"
        "BACKENDS['new']\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
