"""How the brokers reach the listener of `monitor.toml` themselves, when they send their telemetry there.

The file of `log4j2` lies on brokers, so no secret is written into it: log4j2 reads the login from the environment.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from streaming.kafka_config import Kafka

JAAS: Final = "sasl.jaas.config"
VARIABLE: Final = "TELEMETRY_JAAS"
_SECURITY: Final = "org.apache.kafka.common.security"


def security_of(kafka: Kafka) -> Mapping[str, str]:
    """Return the producer's settings for the listener that `[kafka]` names; none where it is plaintext."""
    if kafka.security_protocol == "PLAINTEXT":
        return {}
    settings = {"security.protocol": str(kafka.security_protocol)}
    if kafka.sasl_mechanism is not None:
        settings |= {"sasl.mechanism": str(kafka.sasl_mechanism), JAAS: f"${{env:{VARIABLE}}}"}
    return settings


def advice(security: Mapping[str, str], given: Mapping[str, str]) -> Iterator[str]:
    """Say what each broker needs besides the file; `given` are the settings that somebody has chosen."""
    if not security:
        return
    protocol = given.get("security.protocol", security["security.protocol"])
    yield f"The brokers will send their lines with {protocol}, as monitor.toml says."
    if JAAS in security and JAAS not in given:
        module = "plain.PlainLoginModule" if security["sasl.mechanism"] == "PLAIN" else "scram.ScramLoginModule"
        yield f"Set {VARIABLE} in the environment of each broker; its user needs Write on the topic:"
        yield f"""  {VARIABLE}='{_SECURITY}.{module} required username="…" password="…";'"""
        yield "log4j prints that login on the broker's console when it cannot write: see docs/telemetry.md."
    if protocol.endswith("SSL") and not any(name.startswith("ssl.truststore.") for name in given):
        yield "If the brokers' Java does not trust the listener's certificate, add:"
        yield "  --property ssl.truststore.type=PEM --property ssl.truststore.location=/path/to/ca.pem"
    yield "To use another listener: --bootstrap-servers, with --property for its security."
