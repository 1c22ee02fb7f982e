"""The environment of all tests."""

import os

# The jobs in tests run for a minute or two. Without C2, its second compiler, the JVM needs half the CPU time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
