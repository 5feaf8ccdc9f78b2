"""Who may do what over the API: docs/api.md, Who may do what."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .views.base import Problem

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: What browsers say of a request of the page itself, or of the person at the address bar.
_OWN_SITE = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, as far as they have shown it."""

    name: str
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """Nothing set: everybody may do everything."""

    read_token: str = ""
    write_token: str = ""
    #: The server asks for client certificates, and knows the authority to check them.
    certificates: bool = False
    #: Common names of certificates that may write; empty: all.
    writers: frozenset[str] = frozenset()
    #: The server listens on loopback only: other names in `Host` are those of a page that plays with DNS.
    loopback: bool = False

    @property
    def closed(self) -> bool:
        """Whether anything has to be shown at all."""
        return bool(self.read_token or self.write_token or self.certificates)

    def visitor(self, headers: Mapping[str, str], peer: str | None) -> Visitor:
        """`headers`: names in lower case. `peer`: common name of a client certificate that was verified.

        Who shows a certificate and a token may what either of them permits; with a wrong token nobody may anything.
        """
        if not self.closed:
            return Visitor("anyone", reads=True, writes=True)
        name, token = _shown(headers.get("authorization", ""))
        # Both are compared, whatever the first says: the time tells nothing.
        reads, writes = _same(token or "", self.read_token), _same(token or "", self.write_token)
        bearer = Visitor(name, reads=reads or writes, writes=writes)
        wrong = token is not None and not bearer.reads and bool(self.read_token or self.write_token)
        if peer is None or not self.certificates or wrong:
            return bearer
        certified = Visitor(peer, reads=True, writes=not self.writers or peer in self.writers)
        return bearer if bearer.writes and not certified.writes else certified

    def refusal(self, method: str, headers: Mapping[str, str], visitor: Visitor) -> Problem | None:
        """Why not; None: go on."""
        reading = method in ("GET", "HEAD", "OPTIONS")
        if self.loopback and not self.closed and _name(headers.get("host", "")) not in _LOOPBACK:
            return Problem(403, f"this server is called localhost, not {headers.get('host', '')[:80]!r}")
        if not reading and _is_foreign(headers):
            return Problem(403, "a page of another site must not write here")
        if not visitor.reads:
            return Problem(401, self._missing("authorization" in headers))
        if not reading and not visitor.writes:
            return Problem(403, f"{visitor.name} may only read")
        return None

    def _missing(self, shown: bool) -> str:
        """What who is not let in has to show, of what is set; `shown`: a token was sent."""
        if not (self.read_token or self.write_token):
            return "a client certificate is needed"
        if shown:
            return "the token that was sent is not the right one"
        certificate = "; or a client certificate" if self.certificates else ""
        return f"a token is needed: send 'Authorization: Bearer TOKEN'{certificate}"


def _shown(authorization: str) -> tuple[str, str | None]:
    """Name and token, of a bearer or of basic authentication; None: of something else, which is none of ours."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return "a bearer", rest.strip()
    if scheme.lower() == "basic":
        try:
            name, _, token = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "nobody", ""
        return _printable(name) or "nobody", token
    return "nobody", None


def _printable(name: str) -> str:
    """It goes into a log: no line of it is to be written by a stranger."""
    return "".join(char for char in name[:80] if char.isprintable())


def _same(shown: str, token: str) -> bool:
    """In the same time whatever is shown, also for one of another length."""
    left, right = (hashlib.sha256(text.encode()).digest() for text in (shown, token))
    return hmac.compare_digest(left, right) and bool(token)


def _is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this for a page of another site (W3C Fetch Metadata; RFC 6454 for older browsers)."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITE
    origin = headers.get("origin")
    if origin is None:
        return False
    # The second one no page of another site can send: it would have to ask first (CORS preflight), and gets no answer.
    ours = (headers.get("host", ""), headers.get("x-forwarded-host", ""))
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        return True
    # Empty for `null`: a page of a file, of a sandbox.
    return not place or place not in ours


def _name(host: str) -> str:
    """Without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
