package oracle;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * A running program, a broker's or a client's, and its threads. Paused, what its threads meant to do waits; resumed,
 * each thread goes on in its own order, and which comes first is chance; killed, what they meant to do never happens.
 */
final class Program {
    private static final long WAKES_WITHIN_US = 3_000;
    private static final long APART_US = 20;

    private final Agenda agenda;
    private final Dice dice;
    private final List<Thread> threads = new ArrayList<>();
    private boolean paused = false;
    private boolean alive = true;

    Program(Agenda agenda, Dice dice) {
        this.agenda = agenda;
        this.dice = dice;
    }

    boolean isAlive() {
        return alive;
    }

    boolean isPaused() {
        return paused;
    }

    Thread newThread() {
        Thread thread = new Thread();
        threads.add(thread);
        return thread;
    }

    void pause() {
        paused = true;
    }

    void resume() {
        if (!paused) return;
        paused = false;
        for (Thread thread : threads) agenda.after(dice.between(0, WAKES_WITHIN_US), thread::catchUp);
    }

    void kill() {
        alive = false;
        threads.clear();
    }

    final class Thread {
        private final ArrayDeque<Runnable> waiting = new ArrayDeque<>();

        void after(long delayUs, Runnable action) {
            at(agenda.nowUs() + delayUs, action);
        }

        void at(long atUs, Runnable action) {
            agenda.at(atUs, () -> run(action));
        }

        private void run(Runnable action) {
            if (!alive) return;
            if (paused || !waiting.isEmpty()) waiting.add(action);
            else action.run();
        }

        private void catchUp() {
            if (paused || !alive || waiting.isEmpty()) return;
            waiting.poll().run();
            agenda.after(APART_US, this::catchUp);
        }
    }
}
