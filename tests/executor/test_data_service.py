"""The journal of a tf.data dispatcher."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tf_executor.user.data_service import DISPATCHER, journal_settings, server


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal in a checkpoint folder that other users may write to."""
    tmp_path.chmod(0o777)
    return tmp_path / ".dcos-tensorflow" / "fed.journals" / "launch-2"


def test_dispatcher_removes_journals_of_earlier_runs(journal: Path) -> None:
    """They may hold whole data sets; the executors' own files stay."""
    (journal.parent / "launch-1" / "datasets").mkdir(parents=True)
    claim = journal.parents[1] / "fed.worker-0.json"
    claim.touch()

    assert {"work_dir": str(journal), "fault_tolerant_mode": True} == journal_settings(str(journal))

    assert [journal] == list(journal.parent.iterdir())
    assert claim.exists()


def test_folder_of_executors_gets_mode_of_checkpoint_dir(journal: Path) -> None:
    """Tasks of another user write their claims there."""
    journal_settings(str(journal))

    assert 0o777 == journal.parents[1].stat().st_mode & 0o777


def test_dispatcher_runs_without_journal_if_it_must(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As without a checkpoint_dir, which the options do not show here."""
    journal.parents[1].touch()

    assert {} == journal_settings(str(journal)) == journal_settings("")

    assert "the data service has no journal: " in capsys.readouterr().err


@pytest.mark.usefixtures("real_tensorflow")
def test_damaged_journal_is_removed(journal: Path) -> None:
    """Each launch would fail on it, as on the half record of a full disk."""
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    environ = {"JOB_NAME": DISPATCHER, "TASK_PORT": "0", "DATA_SERVICE_JOURNAL": str(journal)}
    first = server(service, environ)
    service.register_dataset(first.target, tf.data.Dataset.range(3))
    first._stop()
    (records,) = journal.glob("tf_data_dispatcher_journal/*")
    os.truncate(records, records.stat().st_size - 1)

    with pytest.raises(SystemExit, match="journal removed"):
        server(service, environ)

    server(service, environ)._stop()
