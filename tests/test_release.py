"""What is published: metadata, README, sdist and wheel."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

import tf_scheduler

HOME = Path(__file__).resolve().parent.parent
CONFIG = configparser.ConfigParser()
CONFIG.read(HOME / "setup.cfg")
URLS = dict(line.split(" = ") for line in CONFIG["metadata"]["project_urls"].split("\n") if line)
SOURCE = URLS["Source"]
RAW = SOURCE.replace("github.com", "raw.githubusercontent.com")


def file_of(url: str) -> Path | None:
    """Return the file that an address of the published sources names."""
    match = re.fullmatch(rf"{SOURCE}/(?:blob|tree)/main/(.+?)(?:#.*)?|{RAW}/main/(.+)", url)
    return HOME / (match[1] or match[2]) if match else None


def tokens(text: str) -> list[Token]:
    """Return all tokens of a Markdown text, those inside paragraphs included."""
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def test_readme_links_work_on_an_index() -> None:
    """It resolves no relative link, and shows undefined references as text."""
    parts = tokens((HOME / "README.md").read_text())
    links = {str(part.attrs["href"]) for part in parts if part.type == "link_open"}
    images = {str(part.attrs["src"]) for part in parts if part.type == "image"}

    assert 5 < len(links) <= 12
    assert {f"{RAW}/main/docs/reference/{name}.png" for name in ("terminal", "training")} == images
    assert [] == [url for url in links | images if not url.startswith("https://")]
    assert [] == [url for url in links | images if (file := file_of(url)) and not file.exists()]
    assert [] == [url for url in links | images if file_of(url) is None]
    assert [] == [part.content for part in parts if part.type == "text" and re.search(r"\[[\w .-]+\]", part.content)]


def test_readme_has_two_commands_for_a_checkout() -> None:
    """A reader who has cloned the repository starts with these."""
    section = (HOME / "README.md").read_text().partition("## From a checkout\n")[2].partition("\n![")[0]
    commands = re.findall(r"^ {4}(\S+)", section, re.MULTILINE)

    assert ["scripts/demo", "scripts/test"] == commands
    assert all((HOME / command).exists() for command in commands)


def test_metadata_links_lead_to_files() -> None:
    assert {"Documentation", "Source", "Changelog", "Issues"} == URLS.keys()
    assert (HOME / "docs", HOME / "CHANGELOG.md") == (file_of(URLS["Documentation"]), file_of(URLS["Changelog"]))
    assert f"{SOURCE}/issues" == URLS["Issues"]


def test_changelog_has_versions_with_dates() -> None:
    """The newest section is that of this version; scripts/release requires its date."""
    newest, *earlier = re.findall(r"(?m)^## (.+)$", (HOME / "CHANGELOG.md").read_text())

    assert re.fullmatch(rf"{re.escape(tf_scheduler.__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", newest)
    assert [] == [text for text in earlier if not re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", text)]
