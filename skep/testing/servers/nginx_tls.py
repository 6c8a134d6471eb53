"""nginx with TLS and HTTP/2, and a self-signed certificate. For tests only.

A program that uses `certificate` as its CA file trusts it; others do not.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from skep.testing.private import find_program
from skep.testing.servers import Nginx


class TlsNginx(Nginx):
    """As `Nginx`, by https only. Call `make_certificate` before `start`."""

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    def make_certificate(self) -> None:
        """For 127.0.0.1, valid for two days; raises ServerMissing without openssl."""
        kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", str(self.folder / "key.pem"), "-out", str(self.certificate)]
        names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        words = [find_program("openssl", "openssl"), "req", *kind, *files, *names]
        subprocess.run(words, check=True, capture_output=True)

    def _configuration(self, port: int) -> str:
        keys = f"ssl_certificate {self.certificate}; ssl_certificate_key {self.folder}/key.pem;"
        told = "add_header X-V $server_protocol;"  # so that a test can check for HTTP/2
        plain = super()._configuration(port)
        return plain.replace(f":{port};", f":{port} ssl http2; {keys} {told}")
