"""Find a Java that Kafka and Spark run on; as a script (in `make setup`, before any install) only check for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

MINIMUM_JAVA: Final = 17
_ADVICE: Final = f"install Java {MINIMUM_JAVA} or newer (Debian: apt-get install default-jre-headless)"


class JavaMissingError(RuntimeError):
    """No Java that is new enough; the message is one line that says what to install."""


def java_command() -> str:
    """Return the `java` of JAVA_HOME, else of PATH; raises JavaMissingError if it is missing or older than 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise JavaMissingError(f"no java {f'at {java} (JAVA_HOME)' if home else 'on PATH'}: {_ADVICE}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, check=False).stderr.decode("utf-8", "replace")
    except OSError as error:
        raise JavaMissingError(f"{java} cannot be run ({error.strerror}): {_ADVICE}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if version is None:
        raise JavaMissingError(f"{java} does not say its version: {_ADVICE}")
    if int(version[1]) < MINIMUM_JAVA:
        raise JavaMissingError(f"{java} is Java {version[1]}, too old: {_ADVICE}")
    return java


if __name__ == "__main__":
    try:
        java_command()
    except JavaMissingError as error:
        sys.exit(str(error))
