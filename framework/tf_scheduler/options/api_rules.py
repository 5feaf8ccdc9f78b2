"""Rules over the options of the API. Each is named as the sentence that it enforces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.secrets import parse_source

Document = Mapping[str, Any]

_CREDENTIALS = ("read_token", "write_token", "client_ca_file")


def the_apis_certificate_comes_with_its_key(options: Document) -> Iterator[Problem]:
    api = options["api"]
    if bool(api["certificate_file"]) != bool(api["key_file"]):
        missing = "key_file" if api["certificate_file"] else "certificate_file"
        yield Problem(f"api.{missing}", "is needed: a certificate and its key belong together")


def client_certificates_need_https(options: Document) -> Iterator[Problem]:
    api = options["api"]
    if api["client_ca_file"] and not api["certificate_file"]:
        yield Problem("api.client_ca_file", "needs api.certificate_file: only https has client certificates")


def writers_have_certificates(options: Document) -> Iterator[Problem]:
    api = options["api"]
    if api["writers"] and not api["client_ca_file"]:
        yield Problem("api.writers", "needs api.client_ca_file: it names client certificates")


def an_open_api_has_no_credentials(options: Document) -> Iterator[Problem]:
    api = options["api"]
    given = [name for name in _CREDENTIALS if api[name]]
    if api["authentication"] == "none" and given:
        yield Problem("api.authentication", f"must not be none with api.{given[0]}: nobody would be asked for it")


def tokens_are_sources(options: Document) -> Iterator[Problem]:
    """A token that stands in the options itself could be read by everybody who reads them."""
    for name in ("read_token", "write_token"):
        text = options["api"][name]
        if text and not _is_near(text):
            near = f"env:VARIABLE, or file:NAME of one in {options['secret_delivery']['directory']}"
            yield Problem(f"api.{name}", f"must name where the token is, as {near}")


def _is_near(text: str) -> bool:
    try:
        return parse_source(text).scheme in ("env", "file")
    except ValueError:
        return False
