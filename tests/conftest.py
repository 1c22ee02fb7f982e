"""What holds for all tests."""

import os

# A test's job runs for a minute or two. Without its second compiler, C2, Spark's JVM takes half the processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
