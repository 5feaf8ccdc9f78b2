"""Run the product's commands in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Finished(NamedTuple):
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


def invoke_main(main: Callable[[list[str]], Any], capsys: pytest.CaptureFixture[str], *arguments: object) -> Finished:
    """Call the `main` of a command, which returns its exit code or exits with it."""
    try:
        code = main([str(word) for word in arguments])
    except SystemExit as end:
        code = end.code
    return Finished(code or 0, *capsys.readouterr())
