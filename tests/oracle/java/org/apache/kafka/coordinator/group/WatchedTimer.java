package org.apache.kafka.coordinator.group;

import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;

/** The coordinator's own timer, which also shows for which instant each of its timers is set. */
final class WatchedTimer implements CoordinatorTimer<CoordinatorRecord> {
    private final CoordinatorTimer<CoordinatorRecord> timer;
    private final Time time;
    private final Map<String, Long> dueMs = new HashMap<>();

    WatchedTimer(CoordinatorTimer<CoordinatorRecord> timer, Time time) {
        this.timer = timer;
        this.time = time;
    }

    /** When a timer that is still set is due, by the present wall clock. */
    OptionalLong dueMs(String key) {
        if (!timer.isScheduled(key)) return OptionalLong.empty();
        return OptionalLong.of(dueMs.get(key) + time.milliseconds() - time.hiResClockMs());
    }

    private void note(String key, long delay, TimeUnit unit) {
        dueMs.put(key, time.hiResClockMs() + unit.toMillis(delay));
    }

    @Override
    public void schedule(
        String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation
    ) {
        note(key, delay, unit);
        timer.schedule(key, delay, unit, retry, operation);
    }

    @Override
    public void schedule(
        String key, long delay, TimeUnit unit, boolean retry, long backoff,
        TimeoutOperation<CoordinatorRecord> operation
    ) {
        note(key, delay, unit);
        timer.schedule(key, delay, unit, retry, backoff, operation);
    }

    @Override
    public void scheduleIfAbsent(
        String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation
    ) {
        if (!timer.isScheduled(key)) schedule(key, delay, unit, retry, operation);
    }

    @Override
    public void cancel(String key) {
        timer.cancel(key);
    }

    @Override
    public boolean isScheduled(String key) {
        return timer.isScheduled(key);
    }
}
