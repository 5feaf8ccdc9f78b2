"""Read sources of secrets; a source is written `scheme:path#key`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tf_scheduler.errors import SecretError
from tf_scheduler.model.secrets import INLINE_SCHEME, HiddenText, SecretSource, parse_source

MISSING_VAULT = "secrets of Vault need the extra `vault`: pip install 'dcos-tensorflow[vault]'"
#: Returns the value of a source of one scheme. Raises SecretError.
Reader = Callable[[SecretSource], bytes]


class SecretSources:
    """Readers of secrets by scheme. Values are not cached. Thread-safe."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers

    def value(self, text: str) -> bytes:
        """Return a value. Raises SecretError, or SourceUnavailableError: a retry may help."""
        scheme, _, rest = text.partition(":")
        try:
            source = SecretSource(INLINE_SCHEME, rest) if scheme == INLINE_SCHEME else parse_source(text)
        except ValueError as error:
            raise SecretError(f"source `{text}`: {error}") from None
        reader = self._readers.get(source.scheme)
        if reader is None:
            raise SecretError(f"{source}: this scheduler is not configured for `{source.scheme}:` sources")
        return reader(source)


def environment_reader(environment: Mapping[str, str]) -> Reader:
    """Return a reader of the scheduler's environment variables."""

    def read(source: SecretSource) -> bytes:
        if source.path not in environment:
            raise SecretError(f"{source}: missing variable in the scheduler's environment")
        return os.fsencode(environment[source.path])

    return read


def directory_reader(folder: Path) -> Reader:
    """Return a reader of files below a folder; the target of a link must be below it."""

    def read(source: SecretSource) -> bytes:
        try:
            # Kubernetes replaces a secret by moving a link, so the path is resolved each time.
            root, path = folder.resolve(strict=True), (folder / source.path).resolve(strict=True)
            if not path.is_relative_to(root):
                raise SecretError(f"{source}: the file is outside {folder}")
            return path.read_bytes()
        except OSError as error:
            raise SecretError(f"{source}: {folder / source.path}: {error.strerror}") from error

    return read


def options_reader(options: Mapping[str, HiddenText]) -> Reader:
    """Return a reader of values that the options contain, by the option's path."""

    def read(source: SecretSource) -> bytes:
        return options[source.path].reveal().encode()

    return read
