"""Known vulnerabilities of a lock file, from pip-audit's JSON: a report that never fails a build.

Usage: pip-audit --format json … | python .ci/audit.py <lock file>
"""

from __future__ import annotations

import json
import sys
from typing import Any


def report(found: dict[str, Any] | None, lock: str) -> list[str]:
    """Lines to print. found: pip-audit's answer; None where it gave none."""
    packages = found["dependencies"] if found else []
    asked = [package for package in packages if "vulns" in package]
    if not asked:
        return [
            f"Not audited: no advisory service answered for the packages of {lock}.",
            "Run it where the package index is reachable, or name another service: make audit AUDIT_SERVICE=osv.",
        ]
    lines = [line for package in asked for line in _of_package(package)]
    affected = sum(bool(package["vulns"]) for package in asked)
    unknown = len(packages) - len(asked)
    rest = f"; {unknown} not known to the service" if unknown else ""
    return [*lines, f"{lock}: {len(asked)} packages audited, {affected} with known vulnerabilities{rest}."]


def _of_package(package: dict[str, Any]) -> list[str]:
    name = f"{package['name']} {package['version']}"
    return [
        f"{name}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version yet'}"
        for one in package["vulns"]
    ]


def parsed(text: str) -> dict[str, Any] | None:
    """pip-audit's answer; None where it ended without one."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


if __name__ == "__main__":
    print("\n".join(report(parsed(sys.stdin.read()), sys.argv[1])))
