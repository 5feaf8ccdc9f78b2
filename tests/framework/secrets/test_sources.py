"""Sources of secret values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tf_scheduler.errors import SecretError
from tf_scheduler.model.secrets import SOURCE_FORMATS, HiddenText, SecretSource, parse_source
from tf_scheduler.secrets.sources import SecretSources, directory_reader, environment_reader, options_reader


@pytest.fixture
def sources(tmp_path: Path):
    root = tmp_path / "secrets"
    (root / "db").mkdir(parents=True)
    (root / "db" / "password").write_bytes(b"pass\0word\n")
    (tmp_path / "outside").write_text("not yours")
    (root / "link").symlink_to(tmp_path / "outside")
    # As Kubernetes lays it out: a link that is moved to a new folder.
    (root / "..2026").mkdir()
    (root / "..2026" / "token").write_text("first")
    (root / "..data").symlink_to("..2026")
    (root / "token").symlink_to("..data/token")
    return SecretSources(
        {
            "file": directory_reader(root),
            "env": environment_reader({"KEY": "from the environment", "RAW": os.fsdecode(b"\xff")}),
            "option": options_reader({"service.gcs_key": HiddenText("from the options")}),
        }
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("file:db/password", b"pass\0word\n"),
        ("file:token", b"first"),
        ("env:KEY", b"from the environment"),
        ("env:RAW", b"\xff"),
        ("option:service.gcs_key", b"from the options"),
    ],
)
def test_values_are_unchanged(sources, source, value) -> None:
    assert value == sources.value(source)


def test_new_value_is_read_next_time(sources, tmp_path: Path) -> None:
    """Rotation: values are not cached."""
    sources.value("file:token")
    root = tmp_path / "secrets"
    (root / "..2027").mkdir()
    (root / "..2027" / "token").write_text("second")
    (root / "..data").unlink()
    (root / "..data").symlink_to("..2027")
    assert b"second" == sources.value("file:token")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("env:OTHER", "env:OTHER: missing variable"),
        ("file:db/user", "file:db/user: .*No such file"),
        ("file:db", "file:db: .*Is a directory"),
        ("file:link", "file:link: the file is outside"),
        ("file:../outside", "must be file:FOLDER/NAME"),
        ("file:/etc/passwd", "must be file:FOLDER/NAME"),
        ("vault:secret/a#b", "vault:secret/a#b: this scheduler is not configured"),
        ("a/b", "dcos:a/b: this scheduler is not configured"),
    ],
)
def test_unreadable_source_names_the_reason(sources, source, problem) -> None:
    with pytest.raises(SecretError, match=problem) as caught:
        sources.value(source)
    assert "not yours" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("env:A_1", SecretSource("env", "A_1")),
        ("file:a/b.pem", SecretSource("file", "a/b.pem")),
        ("vault:secret/team/db#password", SecretSource("vault", "secret/team/db", "password")),
        ("dcos:/team/key", SecretSource("dcos", "team/key")),
        ("/gcs_key", SecretSource("dcos", "gcs_key")),
        ("__dcos_base64__keytab", SecretSource("dcos", "__dcos_base64__keytab")),
        ("reference:team/key", SecretSource("reference", "team/key")),
        ("reference:team/key#user", SecretSource("reference", "team/key", "user")),
    ],
)
def test_sources_are_parsed(text, source) -> None:
    """A path alone is one of DC/OS, as in the original package."""
    assert source == parse_source(text)
    assert source == parse_source(str(source))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "env:",
        "env:A B",
        "env:A=B",
        "env:A#b",
        "file:",
        "file:a//b",
        "file:a/../b",
        "vault:secret#a",
        "vault:a/b",
        "vault:a/b#",
        "dcos:a?b",
        "dcos:a/../b",
        "reference:",
        "option:service.gcs_key",
        "aws:a",
        "http://a/b",
    ],
)
def test_invalid_source_is_refused(text) -> None:
    with pytest.raises(ValueError, match="must be ") as caught:
        parse_source(text)
    assert any(form in str(caught.value) for form in SOURCE_FORMATS.values())


def test_hidden_text_is_not_printed() -> None:
    assert "***" == f"{HiddenText('hush')}" == repr(HiddenText("hush"))
