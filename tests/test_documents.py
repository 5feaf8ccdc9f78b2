"""Every link from a page of the repository to a page or file of it must resolve."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent
#: [text](target), not an image's address on another server, nor a place on the same page.
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def pages() -> list[Path]:
    """Return tracked and new pages of the repository, not those of ignored folders.

    An sdist has no repository.
    """
    if not (HOME / ".git").exists():
        return [path for path in HOME.rglob("*.md") if ".venv" not in path.parts]
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


def test_tour_names_code_that_exists() -> None:
    """The tour stays true when code moves: each `path: name` is defined in that file."""
    text = (HOME / "docs" / "tour.md").read_text()
    roots = (HOME / "framework" / "tf_scheduler", HOME / "executor" / "tf_executor", HOME)
    named = re.findall(r"`([\w/]+\.py)(?:: (\w+)(?:\.(\w+))?)?`", text)
    wrong = []
    for path, *names in named:
        file = next((root / path for root in roots if (root / path).exists()), None)
        code = "" if file is None else file.read_text()
        if file is None or not all(re.search(rf"(def|class) {name}\b", code) for name in names if name):
            wrong.append(f"{path}: {'.'.join(names)}")

    assert len(text.splitlines()) < 100
    assert named
    assert [] == wrong


#: Where a quoted message may be composed of several strings: punctuation, values, examples of names, and these words.
_JOINT = re.compile(
    r"\.\.\.|[;:,()\[?]|`\w+`|(?:(?:signal|process) )?\S*\d\S*|options\.json|service\.comand|\b(?:but|failed|mem)\b"
)


def test_troubleshooting_quotes_messages_of_the_product() -> None:
    """A user searches the page for the words that the program printed."""
    page = (HOME / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^\*\*(.+?)\*\*", page, re.MULTILINE)
    quoted = [text for heading in headings for _, text in re.findall(r"(``?)(.+?)\1", heading) if " " in text]
    files = [path for part in ("framework", "executor") for path in (HOME / part).rglob("*.py")]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_bytes())))
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    parts = {part.strip() for text in quoted for part in _JOINT.split(text)}

    assert len(quoted) > 15
    assert [] == sorted(part for part in parts if " " in part and part not in texts)
