# SPDX-License-Identifier: BSD-3-Clause
"""Certificates for tests, by the command openssl."""

import subprocess

import pytest

import tensormsg

needs_tls = pytest.mark.skipif(
    not tensormsg.info()["machine"]["tls"].startswith("OpenSSL"),
    reason="a build without OpenSSL")


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True,
                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Site:
    """An authority, and the certificates that it has signed."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._sign("ca", "authority", "-addext",
                   "basicConstraints=critical,CA:TRUE")

    def _sign(self, file, name, *more):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-noenc", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", self.folder / f"{file}.key",
                "-out", self.folder / f"{file}.pem", *more)

    def issue(self, name, file=None):
        self._sign(file or name, name, "-CA", self.ca, "-CAkey",
                   self.folder / "ca.key", "-addext",
                   "subjectAltName=DNS:localhost,IP:127.0.0.1")
        return self.files(file or name)

    def files(self, name):
        return {"ca": self.ca, "cert": self.folder / f"{name}.pem",
                "key": self.folder / f"{name}.key"}
