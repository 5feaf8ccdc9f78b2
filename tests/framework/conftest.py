"""Settings of all tests of the framework's packages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_old_answers() -> Iterator[None]:
    """Let the API repeat no expensive answer: on a busy machine each one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tf_scheduler.api.app._VALIDITY", 0)
        yield
