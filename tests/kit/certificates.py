"""Certificate authority and certificates, made with the openssl command."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from .commands import run_program

#: Host names in the server's certificate.
NAMES = "DNS:localhost,IP:127.0.0.1"
_NEW_KEY = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

#: Python 3.13 rejects an authority without it.
_AUTHORITY = "-addext keyUsage=critical,keyCertSign,cRLSign"


@dataclass(frozen=True)
class Certificates:
    """PEM files: NAME.pem and NAME.key, and both of them in NAME.both.pem."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Create two authorities and the certificates of both sides."""
        made = cls(folder)
        for name in ("ca", "stranger"):
            made._openssl(f"{_NEW_KEY} -x509 -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2 {_AUTHORITY}")
        made._sign("server", f"subjectAltName={NAMES}")
        made._sign("elsewhere", "subjectAltName=IP:127.0.0.9")
        for client in ("client", "other"):
            made._sign(client, "extendedKeyUsage=clientAuth")
        made._sign("unknown", "extendedKeyUsage=clientAuth", "stranger")
        return made

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def pair(self, name: str) -> tuple[str, str]:
        return self.path(f"{name}.pem"), self.path(f"{name}.key")

    @property
    def ca(self) -> str:
        return self.path("ca.pem")

    @property
    def client(self) -> tuple[str, str]:
        return self.pair("client")

    def server_context(self, *, ask_clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.pair("server"))
        if ask_clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _sign(self, name: str, extension: str, authority: str = "ca") -> None:
        (self.folder / f"{name}.cnf").write_text(extension + "\n")
        self._openssl(f"{_NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}")
        by = f"-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 -extfile {name}.cnf"
        self._openssl(f"x509 -req -in {name}.csr {by} -out {name}.pem")
        (self.folder / f"{name}.both.pem").write_text("".join(Path(path).read_text() for path in self.pair(name)))

    def _openssl(self, command: str) -> None:
        run_program("openssl", *command.split(), cwd=self.folder, check=True)
