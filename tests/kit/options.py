"""Options documents of tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.load import parse, resolve
from tf_scheduler.options.spec import to_spec


def load_spec(
    document: Mapping[str, Any] | bytes, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> ServiceSpec:
    """Return the spec of a document as it is read from a file. Raises OptionsError."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return to_spec(resolve(parse(data, "options.json"), defaults))


def options_problems(document: Mapping[str, Any] | bytes) -> list[Problem]:
    """Return the problems of an invalid document."""
    with pytest.raises(OptionsError) as caught:
        load_spec(document)
    return list(caught.value.problems)
