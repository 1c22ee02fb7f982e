package oracle;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * A running program (a broker or a client) and its threads. While it is paused, the tasks of its threads wait. When it
 * is resumed, each thread continues in its own order, and chance decides which thread is first. When it is killed, the
 * tasks never run.
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
