"""A signal ends the demo at once, or at the next look where Python lost it."""

import os
import signal
import sys

import pytest

from streaming.demo.stop import Stop

ENDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit}


@pytest.fixture
def stop():
    before = {number: signal.getsignal(number) for number in ENDS}
    yield Stop()
    for number, handler in before.items():
        signal.signal(number, handler)


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


def test_nothing_asked_is_nothing_raised(stop):
    stop.obey()
