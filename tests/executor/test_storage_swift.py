"""Carried checkpoints in a real object store, whose servers are killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kit.swift_store import KEY, SECRET, SwiftStore, run_swift
from kit.waiting import wait_until
from tf_executor.user import storage

boto3 = pytest.importorskip("boto3")
pytestmark = pytest.mark.usefixtures("real_storage")


class Launch:
    """A sandbox with a carrier, and a program that saves ever new checkpoints."""

    def __init__(self, tmp_path: Path, store: SwiftStore, number: int) -> None:
        self.sandbox = tmp_path / f"launch-{number}"
        self.sandbox.mkdir()
        self._settings = {
            "url": "s3://bucket/run",
            "mode": "carried",
            "role": "writer",
            "every": 0.2,
            "keep": 2,
            "grace": 60,
            "options": {"endpoint_url": store.address},
            "launched_at": 1.0,
            "task_id": f"launch-{number}",
        }
        bring = self.start("bring")
        bring.communicate()
        assert 0 == bring.returncode, (self.sandbox / "bring").read_text()

    def start(self, mode: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(storage.__file__).parents[2]),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            storage.SETTINGS_VARIABLE: json.dumps(self._settings),
        }
        command = [sys.executable, "-m", "tf_executor.storage", mode]
        with (self.sandbox / mode).open("w") as output:
            return subprocess.Popen(
                command,
                cwd=self.sandbox,
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def save(self, number: int, size: int) -> None:
        """Replace the checkpoint by one whose index has the digest of its data."""
        folder = self.sandbox / "checkpoints"
        old, data = list(folder.glob("ckpt-*")), random.randbytes(size)
        (folder / f"ckpt-{number}.data-00000-of-00001").write_bytes(data)
        (folder / f"ckpt-{number}.index").write_text(hashlib.sha256(data).hexdigest())
        (folder / "new").write_text(f'model_checkpoint_path: "ckpt-{number}"\n')
        (folder / "new").replace(folder / "checkpoint")
        for path in old:
            path.unlink()

    def restored(self) -> int:
        """Check the restored checkpoint; return its number, 0 without one."""
        folder = self.sandbox / "checkpoints"
        if not (folder / "checkpoint").exists():
            return 0
        prefix = (folder / "checkpoint").read_text().split('"')[1]
        data = (folder / f"{prefix}.data-00000-of-00001").read_bytes()
        assert hashlib.sha256(data).hexdigest() == (folder / f"{prefix}.index").read_text()
        return int(prefix.rpartition("-")[2])

    def stored(self) -> int:
        """Number of the last checkpoint that the carrier has reported; 0: none yet."""
        lines = (self.sandbox / "carry").read_text().splitlines()
        return max((int(line.split("ckpt-")[1].split()[0]) for line in lines if "stored ckpt-" in line), default=0)


def test_killed_servers_and_carriers_leave_complete_checkpoints(tmp_path: Path) -> None:
    """Each server dies during an upload, and in every other launch the carrier, too."""
    with run_swift(tmp_path / "swift") as store:
        client = boto3.client(
            "s3",
            endpoint_url=store.address,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket="bucket")
        last = number = 0
        for round_number, victim in enumerate(("object", "container", "proxy", "object")):
            launch = Launch(tmp_path, store, round_number)
            assert last <= launch.restored() <= number
            carrier = launch.start("carry")
            try:
                launch.save(number + 1, 1000)
                wait_until(lambda: launch.stored() == number + 1)  # noqa: B023 - called at once
                launch.save(number + 2, 8_000_000)
                store.kill(victim)
                launch.save(number + 3, 1000)
                store.start(victim)
                number += 3
                if round_number % 2:
                    carrier.kill()
                carrier.communicate("1 -9\n")
                assert round_number % 2 or launch.stored() == number, (launch.sandbox / "carry").read_text()
                last = launch.stored()
            finally:
                carrier.kill()
                carrier.communicate()
        assert last <= Launch(tmp_path, store, 99).restored() <= number
