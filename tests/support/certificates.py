"""Certificates for TLS tests: one authority, a server's and a client's, as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files in one folder.

    `server_cert` is for localhost and 127.0.0.1; `client_cert` for the e-mail address
    client@example.org; `other_ca` has signed neither.
    """

    ca: Path
    other_ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path

    def server_config(self, *, verify: bool = False, handshake_first: bool = False) -> str:
        """The `tls` block of a server's configuration file."""
        lines = [
            f'cert_file: "{self.server_cert}"',
            f'key_file: "{self.server_key}"',
            f'ca_file: "{self.ca}"',
            "timeout: 5",
        ]
        if verify:
            lines.append("verify: true")
        if handshake_first:
            lines.append("handshake_first: true")
        return "tls {\n  " + "\n  ".join(lines) + "\n}\n"


def make_certificates(folder: Path) -> Certificates:
    """New certificates as files in `folder`."""
    authority, other = trustme.CA(), trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    client = authority.issue_cert("client@example.org")
    names = ("ca", "other-ca", "server", "server-key", "client", "client-key")
    files = Certificates(*(folder / f"{name}.pem" for name in names))
    authority.cert_pem.write_to_path(files.ca)
    other.cert_pem.write_to_path(files.other_ca)
    for issued, cert, key in (
        (server, files.server_cert, files.server_key),
        (client, files.client_cert, files.client_key),
    ):
        cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
    return files
