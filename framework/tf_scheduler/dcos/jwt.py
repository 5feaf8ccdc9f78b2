"""JSON Web Tokens as DC/OS uses them: made with RS256, read without a check.

A signature of RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518, section 3.3) is one exponentiation, so pure Python does: the
scheduler's bundle has no compiled module. Those that others signed we pass on, never rely on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import rsa
from pyasn1.codec.der import decoder
from pyasn1.error import PyAsn1Error

PrivateKey = rsa.PrivateKey

_HEADER = {"alg": "RS256", "typ": "JWT"}
_PKCS8, _PKCS1 = "PRIVATE KEY", "RSA PRIVATE KEY"


class KeyFormatError(ValueError):
    """The text is no RSA private key. Nothing of it is quoted."""


def load_private_key(pem: str) -> PrivateKey:
    """From PKCS#8 (`BEGIN PRIVATE KEY`, what DC/OS makes) or PKCS#1. Raise KeyFormatError."""
    text = pem.replace("\\n", "\n")
    try:
        if f"BEGIN {_PKCS1}" in text:
            return rsa.PrivateKey.load_pkcs1(text.encode())
        if f"BEGIN {_PKCS8}" in text:
            # PrivateKeyInfo: version, algorithm, the PKCS#1 key in an octet string (RFC 5208).
            info, _ = decoder.decode(rsa.pem.load_pem(text.encode(), _PKCS8))
            return rsa.PrivateKey.load_pkcs1(bytes(info[2]), format="DER")
    except (ValueError, PyAsn1Error, IndexError, TypeError):
        raise KeyFormatError("is damaged, or no RSA key") from None
    raise KeyFormatError("must be an RSA key in PEM, without a password")


def signed(claims: Mapping[str, Any], key: PrivateKey) -> str:
    """The token of these claims."""
    head = f"{_encoded(_json(_HEADER))}.{_encoded(_json(claims))}"
    return f"{head}.{_encoded(rsa.sign(head.encode(), key, 'SHA-256'))}"


def claims_of(token: str) -> Mapping[str, Any]:
    """What a token says, believed as it is; empty for what is none."""
    parts = token.split(".")
    try:
        body = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        found = json.loads(body)
    except (IndexError, ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
