package oracle;

import java.util.List;

/**
 * The one partition of {@code __consumer_offsets}: who leads it and up to where it is committed. Only what is committed
 * is ever read, by the capture as by anybody.
 */
final class OffsetsTopic {
    private final Agenda agenda;
    private final List<Long> replicationUs;
    private final Dice dice;
    private final Recorder recorder;
    private Broker leader;
    private int epoch = -1;
    private long stalledUntilUs = 0;
    private long recorded = 0;

    /** {@code replicationUs}: how long followers take to fetch; 0 where there are none. */
    OffsetsTopic(Agenda agenda, List<Long> replicationUs, Dice dice, Recorder recorder) {
        this.agenda = agenda;
        this.replicationUs = replicationUs;
        this.dice = dice;
        this.recorder = recorder;
    }

    Broker leader() {
        return leader;
    }

    int epoch() {
        return epoch;
    }

    void stall(long forUs) {
        stalledUntilUs = Math.max(stalledUntilUs, agenda.nowUs() + forUs);
    }

    boolean isSettled() {
        Replica replica = leader.replica();
        return replica.highWatermark() == replica.endOffset();
    }

    /** The controller makes a broker the leader; each broker learns of it at a time of its own. */
    void elect(Broker broker, boolean tailFetched) {
        if (leader != null && leader != broker) broker.replica().follow(leader.replica(), tailFetched);
        leader = broker;
        epoch++;
        awaitFollowers(broker);
    }

    /** What a leader appends is committed once the followers have it; what a deposed leader appends never is. */
    void appended(Broker broker) {
        if (broker == leader) awaitFollowers(broker);
    }

    private void awaitFollowers(Broker broker) {
        long end = broker.replica().endOffset();
        long delayUs = dice.between(replicationUs);
        int epochOfWrite = epoch;
        if (delayUs == 0 && agenda.nowUs() >= stalledUntilUs) commit(end);
        else broker.replication().after(delayUs, () -> commitUnlessStalled(broker, epochOfWrite, end));
    }

    private void commitUnlessStalled(Broker broker, int epochOfWrite, long end) {
        if (broker != leader || epochOfWrite != epoch) return;
        if (agenda.nowUs() < stalledUntilUs)
            broker.replication().at(stalledUntilUs, () -> commitUnlessStalled(broker, epochOfWrite, end));
        else commit(end);
    }

    private void commit(long end) {
        Replica replica = leader.replica();
        if (end <= replica.highWatermark()) return;
        replica.advance(end);
        for (Replica.Entry entry : replica.entries())
            if (entry.offset() >= recorded && entry.offset() < end) recorder.record(entry);
        recorded = Math.max(recorded, end);
        leader.onHighWatermark(end);
    }
}
