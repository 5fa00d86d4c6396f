"""Certificates made on the spot: an authority of the lab's own, and what it vouches for, as PEM files."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconcile.lab.folder import write_atomically

VALID = timedelta(days=3650)
"""A lab may stand for long, and its authority vouches for nothing but loopback."""


@dataclass(frozen=True)
class Authority:
    """Who vouches for the servers and clients of one lab; its files are made on the first call."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """What its clients trust."""
        self._provide()
        return self.folder / "ca.pem"

    def issue(self, name: str, valid: timedelta = VALID) -> Path:
        """Make a certificate for loopback unless it is there; return the file with its key and with itself."""
        file = self.folder / f"{name}.pem"
        if not file.exists():
            self._provide()
            key = ec.generate_private_key(ec.SECP256R1())
            authority = x509.load_pem_x509_certificate((self.folder / "ca.pem").read_bytes())
            signing = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
            assert isinstance(signing, ec.EllipticCurvePrivateKey)
            addresses = x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))
            made = (
                _begun(name, key.public_key(), valid)
                .issuer_name(authority.subject)
                .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .sign(signing, hashes.SHA256())
            )
            write_atomically(file, _private(key) + _public(made))
        return file

    def _provide(self) -> None:
        if not (self.folder / "ca.pem").exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = ec.generate_private_key(ec.SECP256R1())
            # A name of its own: two authorities of one name are told apart by their signatures alone.
            name = f"reconcile lab {secrets.token_hex(4)}"
            begun = _begun(name, key.public_key(), VALID)
            signs = x509.KeyUsage(
                key_cert_sign=True,
                crl_sign=True,
                **dict.fromkeys(
                    ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False
                ),
                **dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False),
            )
            made = (
                begun.issuer_name(_named(name))
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(signs, critical=True)
                .sign(key, hashes.SHA256())
            )
            write_atomically(self.folder / "ca.key", _private(key))
            write_atomically(self.folder / "ca.pem", _public(made))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(name: str, key: ec.EllipticCurvePublicKey, valid: timedelta) -> x509.CertificateBuilder:
    """Begin a certificate; one that is valid for less than nothing has expired."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - timedelta(days=1))
        .not_valid_after(now + valid)
    )


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


def _public(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
