"""docs/evidence/security.md names existing tests for its threats."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[3]
_ROW = re.compile(r"^\| (?!threat|---)(.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_threat_has_an_existing_test() -> None:
    _, _, threats = (HOME / "docs" / "evidence" / "security.md").read_text().partition("\n## Secrets of tasks\n")
    rows = _ROW.findall(threats)
    assert len(rows) > 20
    assert [] == [threat for threat, _, proof in rows if not _TEST.search(proof)]
    named = {(path, name) for _, _, proof in rows for path, name in _TEST.findall(proof)}
    assert set() == {(path, name) for path, name in named if name not in functions(HOME / "tests" / path)}


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
