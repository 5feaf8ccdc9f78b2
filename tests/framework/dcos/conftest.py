from __future__ import annotations

from collections.abc import Iterator

import pytest

from dcos_stand_in import Dcos


@pytest.fixture
def dcos() -> Iterator[Dcos]:
    server = Dcos()
    yield server
    server.close()
