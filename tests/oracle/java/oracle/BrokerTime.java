package oracle;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A broker's clocks: the wall's, which may be stepped, and the one that only goes forward. */
final class BrokerTime implements Time {
    private final Agenda agenda;
    private final long startMs;
    private final long firstOffsetUs;
    private long offsetUs;

    BrokerTime(Agenda agenda, long startMs, long offsetUs) {
        this.agenda = agenda;
        this.startMs = startMs;
        this.offsetUs = firstOffsetUs = offsetUs;
    }

    void step(long byUs) {
        offsetUs += byUs;
    }

    @Override
    public long milliseconds() {
        return startMs + Math.floorDiv(agenda.nowUs() + offsetUs, Agenda.MS);
    }

    long withoutStepsMs() {
        return startMs + Math.floorDiv(agenda.nowUs() + firstOffsetUs, Agenda.MS);
    }

    @Override
    public long hiResClockMs() {
        return agenda.nowUs() / Agenda.MS;
    }

    @Override
    public long nanoseconds() {
        return agenda.nowUs() * 1_000;
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("nobody sleeps in virtual time");
    }

    @Override
    public void waitObject(java.lang.Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nobody waits in virtual time");
    }
}
