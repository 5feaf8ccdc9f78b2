"""Every link from a page of the repository to a page or file of it must resolve."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tf_scheduler.cli.main import cli
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import Options

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
    r"\.\.\.|[;:,()\[?}]|`\w+`|(?:(?:signal|process) )?\S*\d\S*|options\.json|service\.comand|\b(?:but|failed|mem)\b"
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


#: An indented or fenced block without a language, or of a shell.
_BLOCK = re.compile(r"^```(?:(?:sh|bash|console)[^\n]*)?\n(.*?)^```$|((?:^ {4,}\S.*\n)+)", re.DOTALL | re.MULTILINE)
#: `dcos-tensorflow`, with its folder, or `dcos tensorflow`, at the start of a command.
_PROGRAM = re.compile(r"(?:^|(?<=\| )|(?<=&& ))(?:\$ )?(?:\w+=\S* )*(?:\S*/)?dcos[- ]tensorflow (.*)$")
_END = frozenset({"|", ">", ">>", "2>", "<", "&&", "||", ";", "&", "2>&1"})
_JSON = re.compile(r"^ *```json[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def commands(text: str) -> Iterator[str]:
    """Yield the arguments of each command of this project in code blocks."""
    for block in _BLOCK.finditer(text):
        for line in (block[1] or block[2]).replace("\\\n", " ").splitlines():
            if match := _PROGRAM.search(line.strip()):
                yield match[1]


def parse_command(line: str) -> None:
    """Raise click.UsageError for an unknown command or option."""
    words = [word for word in shlex.split(line, comments=True) if not re.search(r"[][]", word)]  # [optional]
    words = words[: next((index for index, word in enumerate(words) if word in _END), len(words))]
    command: click.Command = cli
    context = cli.make_context("dcos-tensorflow", list(words))
    while isinstance(command, click.Group) and (words := [*context.protected_args, *context.args]):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        try:
            context = command.make_context(name, list(words), parent=context)
        except click.BadParameter as error:
            if isinstance(error, click.MissingParameter):
                raise
            return  # a placeholder, or a file of the reader
        except click.exceptions.Exit:
            return


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_commands_of_pages_exist(page: Path) -> None:
    """A reader types what a page shows; what the commands do is tested elsewhere."""
    wrong = []
    for line in commands(page.read_text()):
        try:
            parse_command(line)
        except click.UsageError as error:
            wrong.append(f"{line}: {error.format_message()}")

    assert [] == wrong


def test_unknown_commands_and_options_are_found() -> None:
    text = "    dcos-tensorflow local rnu a.json\n\n```sh\nA=1 bin/dcos-tensorflow logs --tial 3 worker-0 | head\n```\n"

    assert 2 == len(list(commands(text)))
    for line in commands(text):
        with pytest.raises(click.UsageError):
            parse_command(line)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_options_on_pages_are_valid(page: Path) -> None:
    """A reader copies them. Some are parts of a file, or a file on each line."""
    sections = Options().fields
    for block in _JSON.findall(page.read_text()):
        several = block.startswith("{") and all(line.endswith("}") for line in block.splitlines())
        for document in [json.loads(text) for text in (block.splitlines() if several else [block])]:
            if document.keys() & sections:
                service = {"command": "true", **document.get("service", {})}
                alone = {} if "strategy" in service else {"parameter_server": {"count": 0}}
                resolve({**alone, **document, "service": {"strategy": "independent", **service}})
