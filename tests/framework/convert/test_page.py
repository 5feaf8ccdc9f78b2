"""docs/migrate tells what the converters do."""

from pathlib import Path

import pytest

from tf_scheduler.convert import beta, operator_job, pod, spark, tfjob, tony_rest, tony_rows
from tf_scheduler.convert.page import filled, tables
from tf_scheduler.options.tree import OPTIONS

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs" / "migrate").glob("*.md"))
ROWS = [
    *(row for rows in (tfjob.ROWS, tfjob.OLDER_ROWS, operator_job.ROWS, pod.ROWS, spark.ROWS) for row in rows),
    *(row for rows in (tony_rows.ROWS, tony_rows.JOB_ROWS, tony_rest.ARGUMENTS, beta.ROWS) for row in rows),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_current(page):
    """If this fails: `python -m tf_scheduler.convert.page docs/migrate`."""
    assert filled(page.read_text()) == page.read_text()


def test_every_table_is_on_a_page():
    """What the converters know, people can read."""
    text = "".join(page.read_text() for page in PAGES)

    assert [] == [name for name in tables() if f"<!-- table: {name} -->" not in text]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.source)
def test_a_row_names_options_that_there_are(row):
    """`{job}` stands for every section."""
    known = {str(option) for option in OPTIONS} | {option.path[0] for option in OPTIONS}

    assert [] == [path for path in row.to if path.format(job="worker") not in known]
