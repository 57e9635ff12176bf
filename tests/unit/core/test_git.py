"""Which commit of Inferometer runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.host import environment, git

ROOT = Path(__file__).parents[3]


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    head = git.printed_by_git(ROOT, "rev-parse", "HEAD")
    assert head is not None
    assert git.commit().head == head.strip()


def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Inferometer's own folder is a checkout; `git` is this shell script."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(git.harness, "__file__", str(tmp_path / "harness" / "__init__.py"))
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "git"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")


def test_where_git_fails_the_reason_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path, monkeypatch, "exit 128")
    assert git.commit() == (None, None, "`git rev-parse` failed with exit code 128")
    software = environment.collect({}).software
    assert (software.git_commit, software.git_dirty) == (None, None)
    assert environment.commit_text(software) == "unknown: `git rev-parse` failed with exit code 128"


def test_so_it_is_where_git_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path, monkeypatch, "exec sleep 600")
    assert git.commit(timeout_s=0.2) == (None, None, "git is not installed, or did not end within 0.2 s")


def test_outside_a_checkout_no_commit_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git.harness, "__file__", str(tmp_path / "harness" / "__init__.py"))
    assert git.commit() == (None, None, None)
