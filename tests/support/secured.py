"""An embedded broker with a listener of every security protocol, and the certificates that they need."""

import datetime as dt
import ipaddress
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from streaming.embedded import EmbeddedCluster
from streaming.embedded.ports import free_ports

USER, PASSWORD = "monitor", 'correct "horse" \\battery'
_DAY = dt.timedelta(days=1)
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@dataclass
class Authority:
    """A certificate authority in a folder; `ca` is the path of its certificate."""

    folder: Path
    name: str = "ours"

    def __post_init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {self.name}")])
        made = _builder(subject, subject, self.key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate = made.sign(self.key, hashes.SHA256())
        self.ca = self.folder / f"{self.name}.ca.pem"
        self.ca.write_bytes(_pem(self.certificate))

    def issue(self, name, *hosts, age=_DAY):
        """Return the paths of a certificate and its key (PKCS #8); `age` is how long ago its validity began."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.certificate.subject, key, age)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), False)
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(_pem(builder.sign(self.key, hashes.SHA256())))
        private.write_bytes(_pem_key(key))
        return certificate, private


def _builder(subject, issuer, key, age=_DAY):
    begin = dt.datetime.now(dt.UTC) - age
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + 2 * _DAY)
    )


def _general_name(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass
class Secured:
    """A running broker; `ports` has the names of `LISTENERS` as keys."""

    cluster: EmbeddedCluster
    authority: Authority
    ports: dict[str, int]

    def server(self, listener):
        return f"127.0.0.1:{self.ports[listener]}"


LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",  # its certificate is for another host
    "EXPIRED": "SSL",
    "SCRAM_ONLY": "SASL_PLAINTEXT",
    "ASTRAY": "PLAINTEXT",  # it advertises a port on which nobody listens
    "CONTROLLER": "PLAINTEXT",
}


@contextmanager
def secured_broker(folder, *, log4j2=None, **more):
    """Start a broker with all these listeners on 127.0.0.1; PLAIN and both SCRAM know `USER` with `PASSWORD`.

    `more` are settings of the broker; `log4j2` makes its log4j2 files from the ports.
    """
    authority = Authority(folder)
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    advertised = [name if "ASTRAY" not in name else "ASTRAY://127.0.0.1:1" for name in listeners[:-1]]
    properties = {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.mtls.ssl.client.auth": "required",
        **_keystore("", authority.issue("broker", "127.0.0.1", "localhost")),
        **_keystore("listener.name.elsewhere.", authority.issue("elsewhere", "kafka-1.example")),
        **_keystore("listener.name.expired.", authority.issue("expired", "127.0.0.1", age=7 * _DAY)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
    }
    for name in ("sasl_plaintext", "sasl_ssl", "scram_only"):
        properties |= _sasl(f"listener.name.{name}.")
    properties["listener.name.scram_only.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    how = {"log4j2": log4j2(ports), "telemetry": False} if log4j2 else {}
    with EmbeddedCluster(port=ports["PLAINTEXT"], properties=properties | more, **how) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                credential = UserScramCredentialUpsertion(USER, mechanism, PASSWORD)
                assert admin.alter_user_scram_credentials([credential]) == {USER: None}
        yield Secured(cluster, authority, ports)


def _keystore(prefix, files):
    certificate, key = files
    both = certificate.with_suffix(".keystore.pem")
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(both)}


def _sasl(prefix):
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    secret = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{secret}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    jaas = {
        f"{prefix}plain.sasl.jaas.config": plain,
        f"{prefix}scram-sha-256.sasl.jaas.config": scram,
        f"{prefix}scram-sha-512.sasl.jaas.config": scram,
    }
    # A properties file reads a backslash as the beginning of an escape.
    return {f"{prefix}sasl.enabled.mechanisms": mechanisms} | {k: v.replace("\\", "\\\\") for k, v in jaas.items()}
