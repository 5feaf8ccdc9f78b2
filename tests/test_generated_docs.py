"""The generated parts of docs are current: `scripts/generate-docs` makes them so."""

from __future__ import annotations

from pathlib import Path

import pytest

import generate_docs
from step_transitions import TRANSITIONS

PAGES = list(generate_docs.pages())


@pytest.mark.parametrize(("path", "text"), PAGES, ids=[path.stem for path, _ in PAGES])
def test_page_is_current(path: Path, text: str) -> None:
    assert text == path.read_text()


def test_tables_are_all_on_pages() -> None:
    """Each rule of the code that has a table can be read by people."""
    text = "".join(text for _, text in PAGES)
    assert [] == [name for name in generate_docs.all_tables() if f"<!-- table: {name} -->" not in text]


def test_diagram_shows_moves_of_the_table() -> None:
    """The diagram shows a part of the moves."""
    assert [] == [(old, new) for old, new in generate_docs.MAIN_MOVES if new not in TRANSITIONS[old]]
