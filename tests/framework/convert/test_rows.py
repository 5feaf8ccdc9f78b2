"""The rows of the converters name options that exist."""

import pytest

from generate_docs import BETA_ROWS, TONY_ARGUMENTS
from tf_scheduler.convert import pod, tfjob, tony
from tf_scheduler.options.schema.document import OPTIONS

ROWS = [
    *(row for rows in (tfjob.ROWS, tfjob.OLDER_ROWS, pod.ROWS) for row in rows),
    *(row for rows in (tony.ROWS, tony.JOB_ROWS, TONY_ARGUMENTS, BETA_ROWS) for row in rows),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.source)
def test_row_names_existing_options(row) -> None:
    """`{job}` stands for every section."""
    names = {str(option) for option in OPTIONS} | {option.path[0] for option in OPTIONS}

    assert [] == [path for path in row.to if path.format(job="worker") not in names]
