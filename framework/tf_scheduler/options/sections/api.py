"""`api`: who may use the scheduler's HTTP API, and how it is encrypted. docs/api.md tells the rest."""

from __future__ import annotations

from tf_scheduler.options.fields import Text

from .base import Section, about

_SOURCE = "a source as in secrets, of env: or file:"


class ApiSection(Section):
    authentication = Text(
        load_default="auto",
        choices=("auto", "none"),
        metadata=about(
            "auto: a token or certificate is needed as soon as one is set; with none of them, the API opens only on "
            "loopback, and where Marathon runs the scheduler. none: everybody who reaches it may use it."
        ),
    )
    read_token = Text(
        load_default="",
        metadata=about(f"Where the token is that may read, {_SOURCE}; empty: none.", examples=["env:API_READ_TOKEN"]),
    )
    write_token = Text(
        load_default="",
        metadata=about(
            f"Where the token is that may read and write, {_SOURCE}; empty: none.", examples=["file:api-token"]
        ),
    )
    certificate_file = Text(load_default="", metadata=about("Certificate of the API; with it the API is https."))
    key_file = Text(load_default="", metadata=about("Its private key."))
    client_ca_file = Text(
        load_default="",
        metadata=about("Certificates of the authorities whose client certificates may use the API; empty: none."),
    )
    writers = Text(
        load_default="",
        metadata=about(
            "Common names of the client certificates that may write, with commas between; empty: all of them.",
            examples=["alice,ci"],
        ),
    )
