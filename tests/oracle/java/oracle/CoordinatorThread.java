package oracle;

import java.util.ArrayDeque;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEvent;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEventProcessor;

/**
 * The coordinator's event loop: one event after the other, each a moment after it was queued. Random ids that an event
 * needs come from the client that asked for it.
 */
final class CoordinatorThread implements CoordinatorEventProcessor {
    private static final long LEAST_US = 10;
    private static final long MOST_US = 120;

    private record Queued(CoordinatorEvent event, Dice ids) {
    }

    private final ArrayDeque<Queued> events = new ArrayDeque<>();
    private final Program.Thread thread;
    private final Dice dice;
    private boolean busy = false;

    CoordinatorThread(Program.Thread thread, Dice dice) {
        this.thread = thread;
        this.dice = dice;
    }

    boolean isIdle() {
        return !busy;
    }

    @Override
    public void enqueueLast(CoordinatorEvent event) {
        events.addLast(new Queued(event, SeededIds.drawnFrom()));
        wake();
    }

    @Override
    public void enqueueFirst(CoordinatorEvent event) {
        events.addFirst(new Queued(event, SeededIds.drawnFrom()));
        wake();
    }

    private void wake() {
        if (busy) return;
        busy = true;
        thread.after(dice.between(LEAST_US, MOST_US), this::runNext);
    }

    private void runNext() {
        Queued next = events.poll();
        SeededIds.drawFrom(next.ids());
        try {
            next.event().run();
        } catch (Throwable error) {
            next.event().complete(error);
        }
        busy = false;
        if (!events.isEmpty()) wake();
    }

    @Override
    public void close() {
    }
}
