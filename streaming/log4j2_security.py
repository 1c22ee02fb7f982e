"""The security settings with which the brokers send their telemetry to the listener of `monitor.toml`.

The login is not among the printed settings: if log4j cannot write, it prints the appender with all of its settings,
with resolved lookups, on the broker's console. So the broker's JVM reads the login from a JAAS file.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from streaming.config.kafka import Kafka

JAAS: Final = "sasl.jaas.config"
_SECURITY: Final = "org.apache.kafka.common.security"


def security_of(kafka: Kafka) -> Mapping[str, str]:
    """Return the producer's settings for the listener that `[kafka]` names; none if it is plaintext."""
    if kafka.security_protocol == "PLAINTEXT":
        return {}
    settings = {"security.protocol": str(kafka.security_protocol)}
    if kafka.sasl_mechanism is not None:
        settings["sasl.mechanism"] = str(kafka.sasl_mechanism)
    return settings


def advice(security: Mapping[str, str], given: Mapping[str, str]) -> Iterator[str]:
    """Yield what each broker needs besides the file; `given` are the settings that the user has chosen."""
    if not security:
        return
    protocol = given.get("security.protocol", security["security.protocol"])
    yield f"The brokers will send their lines with {protocol}, as monitor.toml says."
    if "sasl.mechanism" in security and JAAS not in given:
        module = "plain.PlainLoginModule" if security["sasl.mechanism"] == "PLAIN" else "scram.ScramLoginModule"
        yield "Add this section to the JAAS file of each broker; the user needs Write on the topic:"
        yield f"""  KafkaClient {{ {_SECURITY}.{module} required username="…" password="…"; }};"""
        yield "Start the broker with KAFKA_OPTS=-Djava.security.auth.login.config=/etc/kafka/jaas.conf"
    if protocol.endswith("SSL") and not any(name.startswith("ssl.truststore.") for name in given):
        yield "If the brokers' Java does not trust the listener's certificate, add:"
        yield "  --property ssl.truststore.type=PEM --property ssl.truststore.location=/path/to/ca.pem"
    yield "To use another listener: --bootstrap-servers, with --property for its security."
