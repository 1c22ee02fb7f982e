"""A signal ends the demo at once, or at the next look where Python lost it."""

import os
import signal
import sys

import pytest

from streaming.demo.stop import Stop

ENDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit}


@pytest.fixture(autouse=True)
def handlers():
    """A process that minds both, whatever the shell has made of this one; afterwards as it was."""
    before = {number: signal.getsignal(number) for number in ENDS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stop():
    return Stop()


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_is_obeyed_at_once(stop, number):
    with pytest.raises(ENDS[number]):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_that_is_lost_in_a_finalizer_is_obeyed_at_the_next_look(stop, number, monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: lost.append(told.exc_type))

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), number)

    Dropped()
    assert lost == [ENDS[number]]
    with pytest.raises(ENDS[number]):
        stop.obey()


def test_obey_raises_nothing_without_a_signal(stop):
    stop.obey()


def test_who_ignores_ctrl_c_goes_on_ignoring_it():
    """As a script's background jobs do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Stop()
    os.kill(os.getpid(), signal.SIGINT)
    stop.obey()
