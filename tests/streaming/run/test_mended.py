"""What breaks beside `run`, and is mended: a full disk, a damaged checkpoint. Nothing is lost, doubled or closed."""

import shutil
from contextlib import suppress

import pytest

from tests.streaming.run.conftest import Monitor, small_disk
from tests.streaming.run.test_run import EXPIRED, expired, live, one_dies, the_death

pytestmark = pytest.mark.spark


def fill(folder):
    """Leave no byte free; returns what to delete."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 12)):
            pass
    assert shutil.disk_usage(folder).free == 0
    return ballast


def test_a_full_disk_is_named_and_waited_for(coordinator, members, tmp_path, request):
    live(coordinator, members)
    with small_disk(tmp_path / "disk") as disk:
        watching = Monitor(coordinator, disk)
        watching.log, watching.printed = tmp_path / "run.log", tmp_path / "run.out"
        watching.start()
        request.addfinalizer(lambda: watching.process.poll() is None and watching.kill())
        watching.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
        ballast = fill(disk)
        one_dies(coordinator, members)
        watching.said("is full: free space there")
        ballast.unlink()
        assert expired(watching.wait_for(EXPIRED)) == [the_death(coordinator, members)]
        assert watching.stop() == 0


def second_dies(coordinator, members):
    """The second member dies, too, as `one_dies` leaves the group."""
    coordinator.beats("orders", members[:1], 4, range(45, 54))
    coordinator.expire("orders", members[:2], 4, 54)
    coordinator.beats("orders", members[:1], 5, range(56, 62))


def garble(checkpoint):
    """Make all that is kept of the state unreadable, and what is kept beside it."""
    files = [*checkpoint.glob("state/0/*/*.changelog"), *checkpoint.glob("state/0/*/*.zip")]
    assert files
    for file in (*files, checkpoint / "live-keys.json", checkpoint / "cluster.json"):
        file.write_bytes(b"\0garbled\xff" * 20)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_a_damaged_checkpoint_is_kept_aside_and_nothing_is_lost_doubled_or_closed(coordinator, monitor, members):
    live(coordinator, members)
    first = monitor()
    first.wait_for("SELECT 1 FROM groups WHERE members = 3 AND state = 'Stable'")
    one_dies(coordinator, members)
    before = first.wait_for("SELECT incident_id FROM incidents WHERE rule = 'session-expired'")
    assert first.stop() == 0
    second_dies(coordinator, members)
    [checkpoint] = (first.folder / "data").glob("checkpoint-*")
    garble(checkpoint)
    second = monitor()
    second.said("the checkpoint cannot be used and is kept aside, a fresh one begins")
    rows = second.wait_for(f"{EXPIRED} ORDER BY opened_ms", lambda rows: len(rows) == 2)
    assert [member for _, member, _ in expired(rows)] == [members[2].member_id, members[1].member_id]
    second.wait_for("SELECT 1 FROM runs WHERE caught_up AND batch_id > 5")
    assert second.rows("SELECT incident_id FROM incidents WHERE rule = 'session-expired' AND late = 0") == before
    told = "SELECT t.transition FROM transitions t JOIN incidents USING (incident_id) WHERE rule = 'session-expired'"
    assert {transition for (transition,) in second.rows(told)} == {"opened"}
    assert len(second.rows(told)) == 2
    assert checkpoint.exists()
