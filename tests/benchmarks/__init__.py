"""Measurements of a steady load. So brokers have both of the JVM's compilers, as in production."""

import os

from streaming.embedded.node import JVM_OPTIONS

os.environ.setdefault(JVM_OPTIONS, "-XX:TieredStopAtLevel=4")
