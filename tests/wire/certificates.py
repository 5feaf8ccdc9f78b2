"""Certificate authority and certificates, made with the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: Host names in the server's certificate.
NAMES = "DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """PEM files."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Create two authorities, the second without certificates, and one certificate for each side."""
        for authority in ("ca", "stranger"):
            _openssl(folder, "req", "-x509", *_new_key(authority), "-subj", f"/CN={authority}", "-days", "2")
        _sign(folder, "server", f"subjectAltName={NAMES}")
        _sign(folder, "client", "extendedKeyUsage=clientAuth")
        return cls(folder)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def ca(self) -> str:
        return self.path("ca.pem")

    @property
    def client(self) -> tuple[str, str]:
        return self.path("client.pem"), self.path("client.key")

    def server_context(self, *, ask_clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        if ask_clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _new_key(name: str) -> tuple[str, ...]:
    return (
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        f"{name}.key",
        "-out",
        name + ".pem",
    )


def _sign(folder: Path, name: str, extension: str) -> None:
    (folder / f"{name}.cnf").write_text(extension + "\n")
    _openssl(folder, "req", *_new_key(name)[:-1], f"{name}.csr", "-subj", f"/CN={name}")
    by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.cnf")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
