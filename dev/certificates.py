"""Certificates for tests and trials: an authority of one's own, and what it signs, as PEM files."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

from free_ports import LOOPBACK

_LIFETIME = timedelta(days=2)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates and keeps them in a folder: `ca.pem`, and for each name `NAME.pem` and `NAME.key` (PKCS#8)."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._certificate(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str, *hosts: str, password: str | None = None) -> tuple[Path, Path]:
        """Return the files of a certificate and of its key, which `password` encrypts.

        `hosts` are names or addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._certificate(_named(name), key.public_key())
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        chain, secret = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption = (
            serialization.BestAvailableEncryption(password.encode())
            if password is not None
            else serialization.NoEncryption()
        )
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
        return chain, secret

    def pkcs12(self, name: str, password: str) -> Path:
        """Return a PKCS#12 file with what `certify` made for a name, and this authority's own certificate."""
        key = serialization.load_pem_private_key((self.directory / f"{name}.key").read_bytes(), None)
        own, authority = (
            x509.load_pem_x509_certificate(file.read_bytes()) for file in (self.directory / f"{name}.pem", self.ca)
        )
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"expected a key that this authority made, found {type(key).__name__}")
        encryption = serialization.BestAvailableEncryption(password.encode())
        file = self.directory / f"{name}.p12"
        file.write_bytes(serialize_key_and_certificates(name.encode(), key, own, [authority], encryption))
        return file

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        mine = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            # Python 3.13 refuses certificates without them (ssl.VERIFY_X509_STRICT).
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(mine), critical=False)
        )


def keystore(chain: Path, secret: Path) -> Path:
    """Return a file with key and certificate, as a Java keystore of type PEM takes them (KIP-651)."""
    file = chain.with_suffix(".keystore.pem")
    file.write_bytes(secret.read_bytes() + chain.read_bytes())
    return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if host == LOOPBACK else x509.DNSName(host)
