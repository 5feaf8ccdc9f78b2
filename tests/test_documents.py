"""Every link from one page of the repository to another, or to a file of it, leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent
#: [text](target), not an image's address on another server, nor a place on the same page.
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def pages() -> list[Path]:
    """Pages that are in the repository, or about to be: not those of installed packages."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=HOME,
        capture_output=True,
        text=True,
        check=True,
    )
    return [HOME / name for name in listed.stdout.splitlines() if (HOME / name).exists()]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = _LINK.findall(_CODE.sub("", page.read_text()))
    assert [target for target in targets if not (page.parent / target).exists()] == []
