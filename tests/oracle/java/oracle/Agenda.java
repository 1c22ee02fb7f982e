package oracle;

import java.util.PriorityQueue;

/**
 * The events to come, by virtual microseconds since the life began; those of one instant run in the order of planning.
 */
final class Agenda {
    static final long MS = 1_000;

    private record Entry(long atUs, long number, Runnable action) implements Comparable<Entry> {
        @Override
        public int compareTo(Entry other) {
            int byTime = Long.compare(atUs, other.atUs);
            return byTime == 0 ? Long.compare(number, other.number) : byTime;
        }
    }

    private final PriorityQueue<Entry> entries = new PriorityQueue<>();
    private long count = 0;
    private long nowUs = 0;

    long nowUs() {
        return nowUs;
    }

    void at(long atUs, Runnable action) {
        entries.add(new Entry(Math.max(atUs, nowUs), count++, action));
    }

    void after(long delayUs, Runnable action) {
        at(nowUs + delayUs, action);
    }

    void runUntil(long untilUs) {
        while (!entries.isEmpty() && entries.peek().atUs() <= untilUs) {
            Entry entry = entries.poll();
            nowUs = entry.atUs();
            entry.action().run();
        }
        nowUs = untilUs;
    }
}
