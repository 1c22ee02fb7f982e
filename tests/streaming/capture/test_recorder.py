"""`record` without a broker: what it asks of its client."""

import threading

import pytest

from streaming.capture import recorder


def test_what_retention_deletes_under_it_is_skipped_and_nothing_else(monkeypatch):
    """The client's default is to jump to the end of the topic."""
    asked = {}

    def consumer(**options):
        asked.update(options)
        raise InterruptedError

    monkeypatch.setattr(recorder, "KafkaConsumer", consumer)
    with pytest.raises(InterruptedError):
        next(recorder.record({}, {}, print, threading.Event(), from_beginning=True))
    assert asked["auto_offset_reset"] == "earliest"
