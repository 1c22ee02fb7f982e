"""Who may talk to Spark: its messages are Java-serialized, so whoever may send one may run anything.

Every master demands a secret (`spark.authenticate`). A master on this machine listens on the loopback alone; the
secret is made anew at each start. A cluster has one of its own, and what goes over its network is encrypted.
"""

import os
import secrets
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from streaming.config import Run

LOOPBACK = "127.0.0.1"
# Of the environment: Spark's Utils.localHostName, where a local cluster's master, workers and executors listen.
_ADDRESS_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")


def network_settings(run: Run) -> dict[str, str]:
    """Return Spark's settings of addresses, authentication and encryption."""
    settings = {"spark.authenticate": "true", "spark.ui.killEnabled": "false"}
    if run.on_this_machine:
        return settings | {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return settings | {"spark.network.crypto.enabled": "true"}


def launch_jvm(run: Run, settings: dict[str, str]) -> None:
    """Launch Spark's JVM with settings that every user of this machine may read, and then give it the secret.

    PySpark puts settings on the JVM's command line. The secret goes the way of all calls, through Py4J's gateway, which
    has a token of its own; executors get it in their environment.
    """
    if run.on_this_machine:
        os.environ.update(dict.fromkeys(_ADDRESS_VARIABLES, LOOPBACK))
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - nothing public launches the JVM alone
    if (secret := _secret(run)) is not None:
        SparkContext._jvm.java.lang.System.setProperty("spark.authenticate.secret", secret)  # noqa: SLF001
    _authenticate_callbacks(SparkContext._gateway)  # noqa: SLF001


def _authenticate_callbacks(gateway: Any) -> None:
    """Demand the gateway's token of whoever calls back into this process, as the JVM does for each batch.

    PySpark demands none there, and the JVM would show none: `py4j.PythonClient.copyWith`, which tells it the port,
    forgets the token. So anybody on this machine could call the functions that were handed to Spark.
    """
    token = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)


def _secret(run: Run) -> str | None:
    """Return the secret; None where Spark makes it itself and hands it out (YARN, Kubernetes)."""
    if run.spark_secret is not None:
        return run.spark_secret.get_secret_value()
    return secrets.token_hex(32) if run.on_this_machine else None
