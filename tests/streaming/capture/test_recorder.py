"""`record` without a broker: what it asks of its client."""

import threading

import pytest

from streaming.capture import recorder
from streaming.config.kafka import Kafka


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


def test_a_full_disk_at_the_end_is_the_error_of_the_recording(tmp_path, monkeypatch):
    recording = recorder.Recording(Kafka(), tmp_path / "c.jsonl", from_beginning=True, probing=False)
    monkeypatch.setattr(recording, "_record", lambda: recording._write(["a line"]))
    recording.start()
    recording.ended.wait()
    monkeypatch.setattr(recording._writer, "close", fails := Fails())
    assert recording.finish()
    assert recording.error is fails.error


class Fails:
    error = OSError(28, "No space left on device")

    def __call__(self):
        raise self.error
