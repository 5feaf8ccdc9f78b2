"""docs/evidence/mesos-conformance.md names the test of each point."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from wire.client import ROOT

PAGE = ROOT / "docs" / "evidence" / "mesos-conformance.md"
POINTS = [*map(str, range(1, 66)), *(f"P{number}" for number in range(1, 32))]
_ROW = re.compile(r"^\| (\w+) \| (.+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
#: A reason in place of a test, or beside one, is a sentence.
_REASON = re.compile(r"(?:not yet|not used): .{15,}$")


def rows() -> dict[str, str]:
    """Return the proof of each point."""
    proofs = {name: proof for name, _, proof in _ROW.findall(PAGE.read_text()) if name in POINTS}
    assert proofs
    return proofs


def named_tests() -> list[tuple[str, str]]:
    return _TEST.findall(PAGE.read_text())


@cache
def functions(path: str) -> dict[str, ast.FunctionDef]:
    """Return the test functions of a file by name."""
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_point_is_there_once() -> None:
    """All 65 points and all 31 defects, in order, none twice."""
    listed = [name for name, _, _ in _ROW.findall(PAGE.read_text()) if re.fullmatch(r"P?\d+", name)]
    assert POINTS == listed


def test_every_point_has_tests_or_a_reason() -> None:
    """Each point has tests or a reason; a defect always has a test."""
    bare = [name for name, proof in rows().items() if not _TEST.search(proof) and not _REASON.search(proof)]
    untested = [name for name, proof in rows().items() if name.startswith("P") and not _TEST.search(proof)]
    assert ([], []) == (bare, untested)


def test_nothing_else_is_in_a_proof() -> None:
    """A misspelt test must not pass as prose."""
    left = {name: re.sub(r"[ ,;]", "", _REASON.sub("", _TEST.sub("", proof))) for name, proof in rows().items()}
    assert {} == {name: rest for name, rest in left.items() if rest}


def test_every_test_that_is_named_is_there() -> None:
    """In a file that pytest collects."""
    missing = [
        f"tests/{path}::{name}"
        for path, name in named_tests()
        if not Path(path).name.startswith("test_") or name not in functions(path)
    ]
    assert [] == missing


def marks(node: ast.AST) -> set[str]:
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


@pytest.mark.parametrize("path", sorted({path for path, _ in named_tests()}))
def test_no_test_that_is_named_is_skipped(path) -> None:
    """A test that does not run proves nothing."""
    named = {name for file, name in named_tests() if file == path}
    bad = {"skip", "skipif", "xfail"}
    decorated = {name: node.decorator_list for name, node in functions(path).items() if name in named}
    skipped = [name for name, decorators in decorated.items() if any(marks(one) & bad for one in decorators)]
    tree = ast.parse((ROOT / "tests" / path).read_text())
    whole = [node for node in tree.body if isinstance(node, ast.Assign) and marks(node) & bad]
    assert ([], []) == (skipped, whole)


def test_each_real_defect_is_tried_on_a_real_master_or_agent() -> None:
    """Defects seen on a real Mesos are tested on a real Mesos."""
    real = {"P1", "P2", "P3", "P6", "P7", "P8", "P10", "P11", "P13", "P18", "P20", "P21", "P24", "P31"}
    assert set() == {name for name in real if "test_real_" not in rows()[name]}
