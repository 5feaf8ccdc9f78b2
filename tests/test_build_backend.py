"""The build puts pymesos into the wheel with the listed replacements only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import build_backend

HOME = Path(__file__).parents[1]
SOURCES = sorted(path for path in build_backend.TARGET.iterdir() if path.suffix == ".py")


def test_vendored_files_have_recorded_digests() -> None:
    """With the replacements reversed, each file is that of the pinned sdist."""
    contents = {name: build_backend.TARGET.joinpath(Path(name).name).read_text() for name in build_backend.FILES}
    digests = {name: build_backend.digest(build_backend.restore(text)) for name, text in contents.items()}

    assert build_backend.FILES == digests
    assert {Path(name).name for name in contents if name.endswith(".py")} == {path.name for path in SOURCES}


def test_every_replacement_is_used() -> None:
    """Otherwise an import of a package that is not required would remain."""
    texts = [path.read_text() for path in SOURCES]

    assert [] == [new for new in build_backend.CHANGES.values() if not any(new in text for text in texts)]
    assert [] == [text for text in texts if re.search(r"^(?:from|import) (?:addict|six|http_parser)\b", text, re.M)]


def test_changed_file_is_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of another author does not survive a build."""
    for path in build_backend.TARGET.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(build_backend, "TARGET", tmp_path)
    assert build_backend.is_complete()

    (tmp_path / "utils.py").write_text((tmp_path / "utils.py").read_text() + "import this\n")

    assert not build_backend.is_complete()


def test_unavailable_index_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is missing, without a traceback."""
    (tmp_path / "pin").write_text(f"none==1 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(build_backend, "PIN", tmp_path / "pin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    with pytest.raises(SystemExit, match=r"the build needs pymesos from the package index: .*none==1"):
        build_backend.download(str(tmp_path))


def test_import_needs_no_other_package() -> None:
    """Neither the executor's bundle nor the wheel has six, addict or http-parser."""
    roots = [str(HOME / "framework"), str(HOME / "executor")]
    program = f"import sys; sys.path[:0] = {roots!r}; import mesos_client.executor"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
