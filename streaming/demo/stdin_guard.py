"""`python -m streaming.demo.stdin_guard COMMAND ...`: a `group-monitor` command that stops when its stdin ends.

The demo holds the other end of stdin. So the command ends with the demo, even if the demo was killed.
"""

import os
import signal
import sys
import threading


def _stop_at_the_end_of_stdin() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_the_end_of_stdin, daemon=True).start()

    from streaming.cli import main

    main(sys.argv[1:], prog_name="group-monitor")
