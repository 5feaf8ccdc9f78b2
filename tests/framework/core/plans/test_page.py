"""docs/state-machine.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

from tf_scheduler.core.plans.page import MAIN_MOVES, page
from tf_scheduler.core.plans.tables import MOVES

HOME = Path(__file__).resolve().parents[4]


def test_the_page_is_current():
    """If this fails: `.venv/bin/python -m tf_scheduler.core.plans.page > docs/state-machine.md`."""
    assert page() == (HOME / "docs" / "state-machine.md").read_text()


def test_the_picture_shows_moves_of_the_table():
    """A part of them."""
    assert [] == [(old, new) for old, new in MAIN_MOVES if new not in MOVES[old]]
