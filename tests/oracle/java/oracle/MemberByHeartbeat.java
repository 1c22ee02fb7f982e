package oracle;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;

/**
 * What members of KIP-848, share and streams groups have in common: with heartbeats they join (epoch 0), stay, and
 * leave (-1, -2); the answer has the epoch and the interval.
 */
abstract class MemberByHeartbeat extends Client {
    private static final long RETRY_US = 100 * MS;
    private static final long FATAL_US = 5_000 * MS;

    private String memberId;
    private int epoch = 0;
    private long intervalUs;
    private boolean joined = false;
    private boolean inFlight = false;
    private boolean soon = false;
    private boolean resendsAll = false;
    private boolean ended = false;
    private boolean stuck = false;
    private boolean overslept = false;
    private long polledUs;
    private long beat = 0;

    MemberByHeartbeat(World world, Plan.Client plan, int run, String memberId) {
        super(world, plan, run);
        this.memberId = memberId;
        intervalUs = plan.heartbeatMs() * MS;
    }

    static String newMemberId(World world, Plan.Client plan, int run) {
        Dice ids = new Dice(world.plan().seed(), plan.name() + " member id " + run);
        return new Uuid(ids.between(Long.MIN_VALUE / 2, Long.MAX_VALUE / 2) | 1, ids.between(1, Long.MAX_VALUE / 2))
            .toString();
    }

    /** Sends a heartbeat with this epoch; afterwards {@link #heard} or {@link #unanswered} has to be called. */
    abstract void send(int epoch);

    /** The epoch of a leaving heartbeat: -1 or -2. */
    abstract int leaveEpoch();

    abstract void loseAssignment();

    /**
     * Takes and gives up as the coordinator wants, which needs a poll; returns whether there is something to report.
     */
    abstract boolean reconcile();

    final String memberId() {
        return memberId;
    }

    final boolean resendsAll() {
        return resendsAll;
    }

    @Override
    void start() {
        findCoordinator();
        polledUs = now();
        application.after(0, this::poll);
        background.after(0, () -> heartbeat(beat));
    }

    // ------------------------------------------------------------------ the application's thread

    private void poll() {
        if (stuck || ended) return;
        polledUs = now();
        if (overslept) {
            overslept = false;
            startAnew();
        }
        if (reconcile()) heartbeatSoon();
        application.after(dice.between(plan.pollMs()) * MS, this::poll);
    }

    @Override
    void stall(boolean stuckNow) {
        boolean goesOn = stuck && !stuckNow;
        stuck = stuckNow;
        if (goesOn) application.after(0, this::poll);
    }

    @Override
    void close() {
        ended = true;
        beat++;
        if (joined) send(leaveEpoch());
        application.after(dice.between(1, 50) * MS, this::kill);
    }

    // ------------------------------------------------------------------ heartbeats

    final void heartbeatSoon() {
        if (inFlight) soon = true;
        else background.after(0, () -> heartbeat(++beat));
    }

    private void heartbeat(long thisBeat) {
        if (thisBeat != beat || ended || overslept) return;
        if (now() - polledUs > plan.rebalanceMs() * MS && joined) {
            oversleep();
            return;
        }
        if (!knowsCoordinator()) {
            findCoordinator();
            resendsAll = true;
            background.after(RETRY_US, () -> heartbeat(thisBeat));
            return;
        }
        if (inFlight) return;
        inFlight = true;
        send(epoch);
    }

    private void oversleep() {
        world.recorder().client(plan.name(), "poll-exceeded", world.realMs(), plan.group(), memberId);
        overslept = true;
        joined = false;
        inFlight = false;
        if (knowsCoordinator()) send(leaveEpoch());
        loseAssignment();
    }

    private void startAnew() {
        epoch = 0;
        joined = false;
        loseAssignment();
        heartbeatSoon();
    }

    /** Returns whether the member goes on, and so may look at its assignment. */
    final boolean heard(int epochAsked, Errors error, int newEpoch, String givenId, int intervalMs) {
        if (epochAsked < 0 || ended) return false;
        inFlight = false;
        if (overslept) return false;
        switch (error) {
            case NONE -> {
                epoch = newEpoch;
                memberId = givenId == null ? memberId : givenId;
                intervalUs = intervalMs * MS;
                joined = true;
                resendsAll = false;
                next(soon ? 0 : intervalUs);
                soon = false;
                return true;
            }
            case FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID -> startAnew();
            case NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE -> {
                forgetCoordinator();
                resendsAll = true;
                next(RETRY_US);
            }
            case COORDINATOR_LOAD_IN_PROGRESS -> next(RETRY_US);
            default -> {
                joined = false;
                epoch = 0;
                next(FATAL_US);
            }
        }
        return false;
    }

    final void unanswered() {
        inFlight = false;
        resendsAll = true;
        findCoordinator();
        next(RETRY_US);
    }

    private void next(long delayUs) {
        long thisBeat = ++beat;
        long leftUs = polledUs + plan.rebalanceMs() * MS - now() + 1;
        boolean wakes = joined && leftUs > 0 && leftUs < delayUs;
        background.after(wakes ? leftUs : delayUs, () -> heartbeat(thisBeat));
    }
}
