"""Memory store and SQLite store behave alike for any sequence of calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings

from kit.stores import StoresAgree
from tf_scheduler.store.sqlite import SqliteStore


class SqliteAgrees(StoresAgree):
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().__init__()

    def open_store(self, service: str) -> SqliteStore:
        return SqliteStore(Path(self.folder.name) / "state.db", service)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestStoresAgree = SqliteAgrees.TestCase
TestStoresAgree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
