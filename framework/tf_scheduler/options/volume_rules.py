"""Rules over volumes. Each is named as the sentence that it enforces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem

from .fields import shown
from .sections.jobs import JOBS
from .words import words

Document = Mapping[str, Any]

#: Sections whose tasks may have volumes.
_SECTIONS = (*JOBS, "tensorboard", "data_service")


def volumes_are_for_jobs_that_there_are(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["volumes"]):
        wrong = [name for name in words(record["jobs"]) if name not in _SECTIONS]
        if wrong:
            yield Problem(f"volumes.{place}.jobs", f"must be some of {', '.join(_SECTIONS)}, not {', '.join(wrong)}")


def volumes_are_at_absolute_paths_of_the_agents(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["volumes"]):
        path = record["host_path"]
        if not path.startswith("/") or ".." in path.split("/"):
            yield Problem(f"volumes.{place}.host_path", f"must be an absolute path without '..', not {shown(path)}")


def volumes_are_found_at_paths(options: Document) -> Iterator[Problem]:
    for place, record in enumerate(options["volumes"]):
        path = record["container_path"]
        if {".", ".."} & set(path.split("/")) or not path.strip("/"):
            wanted = "an absolute path, or one below the working directory, without '.' and '..'"
            yield Problem(f"volumes.{place}.container_path", f"must be {wanted}, not {shown(path)}")


def volumes_do_not_hide_each_other(options: Document) -> Iterator[Problem]:
    seen: dict[tuple[str, str], int] = {}
    for place, record in enumerate(options["volumes"]):
        path = record["container_path"].rstrip("/")
        for job in words(record["jobs"]) or _SECTIONS:
            first = seen.setdefault((job, path), place)
            if first != place:
                yield Problem(f"volumes.{place}", f"gives {job} {path} again, as volumes.{first} does")
                break
