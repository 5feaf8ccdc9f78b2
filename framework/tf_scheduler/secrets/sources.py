"""All sources behind one question: what is the value of `scheme:path#key` now?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tf_scheduler.model.secrets import OPTION, Hidden, Source, parse_source

from .errors import SecretError

#: The value of a source of one scheme. Raises SecretError.
Reader = Callable[[Source], bytes]


class Sources:
    """Asked anew for each launch: a value that has changed is delivered at the next start. Safe for threads."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers

    def value(self, text: str) -> bytes:
        """Raise SecretError, or SourceAway when it may be had later."""
        scheme, _, rest = text.partition(":")
        try:
            source = Source(OPTION, rest) if scheme == OPTION else parse_source(text)
        except ValueError as error:
            raise SecretError(f"the source {text} {error}") from None
        reader = self._readers.get(source.scheme)
        if reader is None:
            raise SecretError(f"{source}: this scheduler has no access to such a source")
        return reader(source)


def environment_reader(environment: Mapping[str, str]) -> Reader:
    """Variables of the scheduler."""

    def read(source: Source) -> bytes:
        if source.path not in environment:
            raise SecretError(f"{source}: the scheduler has no such variable")
        return os.fsencode(environment[source.path])

    return read


def directory_reader(folder: Path) -> Reader:
    """Files below a folder, as Docker and Kubernetes mount them: one value each; links may lead nowhere else."""

    def read(source: Source) -> bytes:
        try:
            # Kubernetes renews a secret by moving a link, so the file is looked up each time.
            root, path = folder.resolve(strict=True), (folder / source.path).resolve(strict=True)
            if not path.is_relative_to(root):
                raise SecretError(f"{source}: it leads out of {folder}")
            return path.read_bytes()
        except OSError as error:
            raise SecretError(f"{source}: {folder / source.path}: {error.strerror}") from error

    return read


def options_reader(options: Mapping[str, Hidden]) -> Reader:
    """Values that stand in the options themselves, by the option's path."""

    def read(source: Source) -> bytes:
        return options[source.path].reveal().encode()

    return read
