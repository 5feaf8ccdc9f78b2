"""docs/recovery.md says what the tables say."""

from pathlib import Path

from tf_scheduler.core.recovery.page import page

HOME = Path(__file__).resolve().parents[4]


def test_the_page_is_current():
    """If this fails: `.venv/bin/python -m tf_scheduler.core.recovery.page > docs/recovery.md`."""
    assert page() == (HOME / "docs" / "recovery.md").read_text()
