"""Network access to Spark: its messages are Java-serialized, so anyone who can send one can run any code.

Every master requires a secret (`spark.authenticate`). A master on this machine listens only on the loopback address,
with a new secret at each start. A cluster has its own secret, and its network traffic is encrypted.
"""

import os
import secrets
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from streaming.config.settings import Run

LOOPBACK = "127.0.0.1"
# Read by Spark's Utils.localHostName: the address on which a local cluster's master, workers and executors listen.
_ADDRESS_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")


def network_settings(run: Run) -> dict[str, str]:
    """Return Spark's settings for addresses, authentication and encryption."""
    settings = {"spark.authenticate": "true", "spark.ui.killEnabled": "false"}
    if run.on_this_machine:
        return settings | {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return settings | {"spark.network.crypto.enabled": "true"}


def launch_jvm(run: Run, settings: dict[str, str]) -> None:
    """Launch Spark's JVM with settings that every user of this machine may read, and then pass it the secret.

    PySpark puts settings on the JVM's command line. The secret is passed like any call through Py4J's gateway, which is
    protected by its own token; executors get the secret in their environment.
    """
    if run.on_this_machine:
        os.environ.update(dict.fromkeys(_ADDRESS_VARIABLES, LOOPBACK))
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - nothing public launches the JVM alone
    if (secret := _secret(run)) is not None:
        SparkContext._jvm.java.lang.System.setProperty("spark.authenticate.secret", secret)  # noqa: SLF001
    _authenticate_callbacks(SparkContext._gateway)  # noqa: SLF001


def _authenticate_callbacks(gateway: Any) -> None:
    """Require the gateway's token for calls back into this process, which the JVM makes for each batch.

    PySpark does not require one there, and the JVM would not send one: `py4j.PythonClient.copyWith`, which sets the
    port, drops the token. So anyone on this machine could call the functions that were passed to Spark.
    """
    token = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)


def _secret(run: Run) -> str | None:
    """Return the secret; None if Spark creates and distributes it itself (YARN, Kubernetes)."""
    if run.spark_secret is not None:
        return run.spark_secret.get_secret_value()
    return secrets.token_hex(32) if run.on_this_machine else None
