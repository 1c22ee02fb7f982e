"""The steps to a broker: resolve, connect, TLS handshake, ApiVersions, SASL, Metadata. The first failure ends them.

No credentials are sent to a listener whose security protocol differs from the configured one.
"""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streaming.config.kafka import Kafka, revealed, server_addresses
from streaming.connection.link import Link, NotKafkaError
from streaming.connection.listener import Listener, identify_listener
from streaming.connection.problem import ConnectionProblem, Kind

TIMEOUT_S: Final = 20.0
STEP_S: Final = 10.0  # a busy broker may need seconds for an answer
UNSUPPORTED_MECHANISM, NOT_AUTHORIZED = 33, 29
READ_OPERATION: Final = 3  # AclOperation.READ
AUTHORIZED_OPERATIONS_SINCE: Final = 8  # Metadata version (KIP-430)
METADATA_API: Final = 3
HOST_MISMATCH: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
NOT_YET_VALID, EXPIRED = 9, 10


def diagnose(kafka: Kafka, *, topics: Iterable[str] = (), timeout_s: float = TIMEOUT_S) -> ConnectionProblem | None:
    """Return what keeps a client from using the cluster; None if at least one bootstrap server serves it.

    `topics` have to be readable if they exist. All servers are tried at once, for at most `timeout_s`.
    """
    servers = server_addresses(kafka.bootstrap_servers)
    deadline_s = time.monotonic() + timeout_s
    results: queue.Queue[ConnectionProblem | Exception | None] = queue.Queue()
    for host, port in servers:
        check = _Check(kafka, host, port, tuple(topics), deadline_s)
        # Daemons: a name server that does not answer blocks its thread for longer than anybody wants to wait.
        threading.Thread(target=_report, args=(check.run, results), daemon=True).start()
    problems = []
    for _ in servers:
        try:
            result = results.get(timeout=max(0.0, deadline_s - time.monotonic()) + 0.2)
        except queue.Empty:
            break
        if result is None:
            return None
        if not isinstance(result, ConnectionProblem):
            raise result
        problems.append(result)
    unanswered = f"no answer within {timeout_s:.0f} s"
    late = ConnectionProblem(Kind.NO_ANSWER, kafka.bootstrap_servers, unanswered, "does the name server answer?")
    return _most_telling(problems or [late])


def _report(check: Callable[[], None], results: "queue.Queue[ConnectionProblem | Exception | None]") -> None:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - `diagnose` raises it again
        results.put(error)
    else:
        results.put(None)


def _most_telling(problems: list[ConnectionProblem]) -> ConnectionProblem:
    """Prefer a problem that lasts to one that may pass, and mention the other servers."""
    chosen = next((problem for problem in problems if not problem.transient), problems[0])
    others = [f"{problem.server}: {problem.found}" for problem in problems if problem is not chosen]
    if not others:
        return chosen
    return ConnectionProblem(chosen.kind, chosen.server, chosen.found, f"{chosen.advice} ({'; '.join(others)})")


class _Check:
    """The steps to one bootstrap server; each raises `ConnectionProblem` if it fails."""

    def __init__(self, kafka: Kafka, host: str, port: int, topics: tuple[str, ...], deadline_s: float) -> None:
        self._kafka = kafka
        self._host, self._port = host, port
        self._server = f"{host}:{port}"
        self._topics = topics
        self._deadline_s = deadline_s

    def run(self) -> None:
        """Take all steps."""
        with self._open(self._host, self._port) as link:
            versions = self._versions(link)
            if self._kafka.security_protocol.startswith("SASL"):
                self._authenticate(link)
            metadata = self._metadata(link, versions)
        self._check_topics(metadata)
        self._check_advertised(metadata)

    def _problem(self, kind: Kind, found: str, advice: str) -> ConnectionProblem:
        return ConnectionProblem(kind, self._server, self._safe(found), self._safe(advice))

    def _safe(self, text: str) -> str:
        """Make a text printable and short, and remove the password; it may quote the peer."""
        if password := revealed(self._kafka.sasl_password):
            text = text.replace(password, "********")
        return "".join(c if c.isprintable() else "?" for c in text)[:500]

    def _step_s(self) -> float:
        return min(self._deadline_s, time.monotonic() + STEP_S)

    def _open(self, host: str, port: int) -> Link:
        """Connect, with TLS if it is configured."""
        try:
            link = Link.open(host, port, self._step_s())
        except (socket.gaierror, UnicodeError):
            advice = "check the spelling in [kafka] bootstrap_servers, and the name server"
            raise self._problem(Kind.NAME, f'the name "{host}" does not resolve', advice) from None
        except ConnectionRefusedError:
            advice = "is the broker running, and is this the port of its listener?"
            raise self._problem(Kind.CLOSED, "nothing listens on this port", advice) from None
        except TimeoutError:
            advice = "is the address right, and does a firewall drop the packets?"
            raise self._problem(Kind.NO_ANSWER, "the connection attempt is not answered", advice) from None
        except OSError as error:
            advice = "check the address and the network"
            raise self._problem(Kind.UNREACHABLE, f"no connection: {error.strerror or error}", advice) from None
        if self._kafka.security_protocol.endswith("SSL"):
            try:
                self._secure(link, host)
            except BaseException:
                link.close()
                raise
        return link

    def _secure(self, link: Link, host: str) -> None:
        context = self._context()
        try:
            link.secure(context, host)
        except ssl.SSLCertVerificationError as error:
            raise self._certificate_problem(error, host) from None
        except OSError as error:  # SSLError, a reset, or silence
            raise self._unexpected(error) from None

    def _context(self) -> ssl.SSLContext:
        """Make the same context as kafka-python from these settings."""
        kafka = self._kafka
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if kafka.ssl_cafile:
                context.load_verify_locations(kafka.ssl_cafile)
            else:
                context.load_default_certs()
        except OSError as error:
            advice = "[kafka] ssl_cafile has to be a PEM file of certificates"
            raise self._problem(Kind.FILES, f"{kafka.ssl_cafile}: {error}", advice) from None
        try:
            if kafka.ssl_certfile:
                # Without a password OpenSSL would ask for one at the terminal.
                password = revealed(kafka.ssl_key_password) or ""
                context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile, password)
        except OSError as error:
            advice = "[kafka] ssl_certfile and ssl_keyfile have to be PEM files that belong together, and an encrypted "
            advice += "key needs ssl_key_password_file"
            raise self._problem(Kind.FILES, f"{kafka.ssl_certfile}, {kafka.ssl_keyfile}: {error}", advice) from None
        return context

    def _certificate_problem(self, error: ssl.SSLCertVerificationError, host: str) -> ConnectionProblem:
        if error.verify_code in HOST_MISMATCH:
            found = f'its certificate is not for "{host}" but for {self._certified_names(host)}'
            return self._problem(Kind.CERTIFICATE, found, "use a name of the certificate in [kafka] bootstrap_servers")
        if error.verify_code in (NOT_YET_VALID, EXPIRED):
            found = f"its certificate is not valid now: {error.verify_message}"
            return self._problem(Kind.CERTIFICATE, found, "renew the broker's certificate, or set this machine's clock")
        file = self._kafka.ssl_cafile
        found = f"its certificate is not trusted by {file or 'the authorities of this system'}: {error.verify_message}"
        advice = "name a PEM file with the authority that signed it as [kafka] ssl_cafile"
        return self._problem(Kind.CERTIFICATE, found, advice)

    def _certified_names(self, host: str) -> str:
        """Return the names that the certificate is for. It is trusted, but not for this host."""
        context = self._context()
        context.check_hostname = False
        try:
            with Link.open(host, self._port, self._step_s()) as link:
                certificate = link.secure(context, host)
        except OSError:
            return "others"
        return ", ".join(str(value) for _, value in certificate.get("subjectAltName", ())) or "no host name"

    def _ask(self, link: Link, request: Any) -> Any:
        link.allow_until(self._step_s())
        try:
            return link.ask(request)
        except (OSError, NotKafkaError) as error:
            raise self._unexpected(error) from None

    def _unexpected(self, error: OSError | NotKafkaError) -> ConnectionProblem:
        """Explain a listener that hangs up, stays silent, or does not speak Kafka: find out what it speaks."""
        if isinstance(error, ssl.SSLError) and "CERTIFICATE" in (error.reason or ""):
            advice = "name a PEM certificate and key that the broker trusts as [kafka] ssl_certfile and ssl_keyfile"
            found = f"the broker does not accept our certificate, or requires one ({error.reason})"
            return self._problem(Kind.CLIENT_CERTIFICATE, found, advice)
        configured = self._kafka.security_protocol
        silent = configured.removeprefix("SASL_") if isinstance(error, TimeoutError) else None
        listener = identify_listener(self._host, self._port, self._deadline_s, known_silent=silent)
        if listener is not None and listener.protocol != configured:
            return self._listener_problem(listener)
        if isinstance(error, TimeoutError):
            found = "it accepts connections but does not answer"
            advice = "is the broker paused or overloaded, or is this the port of something other than Kafka?"
            return self._problem(Kind.NO_ANSWER, found, advice)
        if isinstance(error, NotKafkaError):
            found = f"the answer is not from Kafka: {error.head.decode('latin-1')!r}"
            return self._problem(Kind.NOT_KAFKA, found, "is this the port of a Kafka listener?")
        reason = getattr(error, "reason", None) or error.strerror or error
        found = f"it hangs up on a client that speaks {configured}: {reason}"
        return self._problem(Kind.NOT_KAFKA, found, "is this the port of a Kafka listener? See the broker's log")

    def _listener_problem(self, listener: Listener) -> ConnectionProblem:
        offered = f" with {', '.join(listener.mechanisms)}" if listener.mechanisms else ""
        found = f"the listener speaks {listener.protocol}{offered}, not {self._kafka.security_protocol}"
        advice = f'set security_protocol = "{listener.protocol}" under [kafka], or use the port of another listener'
        return self._problem(Kind.LISTENER, found, advice)

    def _versions(self, link: Link) -> dict[int, tuple[int, int]]:
        answer = self._ask(link, ApiVersionsRequest(version=0))
        versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys or ()}
        if METADATA_API not in versions:
            advice = "use the address of a broker's listener"
            raise self._problem(Kind.CONTROLLER, "a KRaft controller answers, which serves no clients", advice)
        return versions

    def _authenticate(self, link: Link) -> None:
        mechanism = str(self._kafka.sasl_mechanism)
        shaken = self._ask(link, SaslHandshakeRequest(version=1, mechanism=mechanism))
        if shaken.error_code == UNSUPPORTED_MECHANISM:
            found = f"the listener does not offer {mechanism} but {', '.join(shaken.mechanisms or ()) or 'nothing'}"
            raise self._problem(Kind.MECHANISM, found, "set [kafka] sasl_mechanism to one that it offers")
        if shaken.error_code:  # 34, illegal SASL state: a listener without SASL
            protocol = self._kafka.security_protocol.removeprefix("SASL_")
            raise self._listener_problem(Listener(protocol))
        client = self._kafka.python_client()
        sasl = get_sasl_mechanism(mechanism)(host=self._host, **client)
        try:
            link.allow_until(self._deadline_s)  # a broker may ask a slow directory
            while not sasl.is_done():
                answer = link.ask(SaslAuthenticateRequest(version=0, auth_bytes=sasl.auth_bytes()))
                if answer.error_code:
                    raise self._refused(mechanism, answer.error_message)
                sasl.receive(answer.auth_bytes)
        except (ValueError, KeyError) as error:  # SCRAM: the broker's proof does not match
            raise self._refused(mechanism, str(error)) from None
        except (ConnectionError, NotKafkaError):
            raise self._refused(mechanism, "the broker hangs up") from None
        except OSError as error:
            raise self._unexpected(error) from None

    def _refused(self, mechanism: str, message: str | None) -> ConnectionProblem:
        user = self._kafka.sasl_username
        found = f'the broker does not accept user "{user}" with this password by {mechanism} ({message or "no reason"})'
        advice = "check [kafka] sasl_username and the password (GROUP_MONITOR_KAFKA_SASL_PASSWORD, else the file "
        advice += "sasl_password_file), and that the user exists for this mechanism"
        return self._problem(Kind.AUTHENTICATION, found, advice)

    def _metadata(self, link: Link, versions: dict[int, tuple[int, int]]) -> Any:
        version = min(versions[METADATA_API][1], MetadataRequest.max_version)
        knows_rights = version >= AUTHORIZED_OPERATIONS_SINCE
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in self._topics if knows_rights]
        request = MetadataRequest(
            version=version,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=knows_rights,
        )
        return self._ask(link, request)

    def _check_topics(self, metadata: Any) -> None:
        """Raise if a topic exists and may not be read."""
        for topic in metadata.topics or ():
            refused = topic.error_code == NOT_AUTHORIZED
            if refused or (topic.error_code == 0 and READ_OPERATION not in topic.authorized_operations):
                user = self._kafka.sasl_username or "the user of this connection"
                found = f'the topic {topic.name} may not be {"described" if refused else "read"} by "{user}"'
                advice = "grant the rights: `group-monitor doctor --acls --config monitor.toml` prints the commands"
                raise self._problem(Kind.AUTHORIZATION, found, advice)

    def _check_advertised(self, metadata: Any) -> None:
        """Raise if no broker can be reached at its advertised address."""
        advertised = {(broker.host, broker.port) for broker in metadata.brokers or ()}
        if not advertised or (self._host, self._port) in advertised:
            return
        problems = []
        for host, port in sorted(advertised):
            check = _Check(self._kafka, host, port, (), self._deadline_s)
            try:
                check._open(host, port).close()
            except ConnectionProblem as problem:
                problems.append(f"{problem.server}: {problem.found}")
            else:
                return
        found = f"it answers, but no broker can be reached at its advertised address ({'; '.join(problems)})"
        advice = "set the brokers' advertised.listeners to addresses that this machine can reach"
        raise self._problem(Kind.ADVERTISED, found, advice)
