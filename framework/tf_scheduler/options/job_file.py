"""Job files: the options of a service, and a section for its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError

from tf_scheduler.errors import OptionsError

from .load import load_fields, to_problems
from .schema.queue import JobDocument

#: Name of the section that only a queue service uses.
SECTION = "job"


@dataclass(frozen=True, slots=True)
class JobFields:
    """The section `job` of a job file."""

    #: Empty: the first queue of the service.
    queue: str = ""
    priority: int = 0
    #: Ids of the jobs that must have succeeded before.
    after: tuple[str, ...] = ()
    #: Empty: the service chooses one.
    id: str = ""
    #: Empty: the user who submits it.
    owner: str = ""
    #: 0: unknown.
    expected_seconds: float = 0.0


def split_job(document: Mapping[str, Any]) -> tuple[JobFields, dict[str, Any]]:
    """Return the section `job` of a job file, and the options.

    Raises OptionsError with all problems of the section and, if there are any, of the values of the options. Rules over
    several options are not checked here.
    """
    options = {name: value for name, value in document.items() if name != SECTION}
    own = {name: value for name, value in document.items() if name == SECTION}
    schema = JobDocument()
    try:
        return JobFields(**schema.load(own)[SECTION]), options
    except ValidationError as error:
        messages: dict[str, Any] = error.normalized_messages()  # type: ignore[no-untyped-call]
        wrong = sorted(to_problems(messages, schema, own), key=str)
        raise OptionsError([*wrong, *load_fields(options)[1]]) from error
