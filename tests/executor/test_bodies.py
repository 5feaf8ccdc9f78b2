"""Types of the API's bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, is_typeddict

import pytest

from dcos_command import answers
from tf_executor.contract import bodies


def body_types() -> Iterator[Any]:
    for module in (bodies, answers):
        yield from (kind for kind in vars(module).values() if is_typeddict(kind) and kind.__module__ == module.__name__)


@pytest.mark.parametrize("kind", list(body_types()), ids=lambda kind: kind.__name__)
def test_required_names_are_those_of_python(kind) -> None:
    """Python 3.8 does not know them: they follow from the names of the classes."""
    assert kind.__required_keys__ == bodies.required_names(kind)
