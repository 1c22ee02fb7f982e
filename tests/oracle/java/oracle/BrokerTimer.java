package oracle;

import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/** Kafka's timer at virtual time: a task runs at its millisecond of the clock that only goes forward. */
final class BrokerTimer implements Timer {
    private final BrokerTime time;
    private final Program.Thread thread;
    private int size = 0;

    BrokerTimer(BrokerTime time, Program.Thread thread) {
        this.time = time;
        this.thread = thread;
    }

    @Override
    public void add(TimerTask task) {
        TimerTaskEntry entry = new TimerTaskEntry(task, task.delayMs + time.hiResClockMs());
        size++;
        thread.at(entry.expirationMs * Agenda.MS, () -> {
            size--;
            if (!entry.cancelled()) task.run();
        });
    }

    @Override
    public boolean advanceClock(long timeoutMs) {
        return false;
    }

    @Override
    public int size() {
        return size;
    }

    @Override
    public void close() {
    }
}
