package oracle;

import java.util.List;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.TimeUnit;

/** The coordinator's background threads, which resolve regular expressions and compute assignments. */
final class Background extends AbstractExecutorService {
    private final Program.Thread thread;
    private final Dice dice;

    Background(Program.Thread thread, Dice dice) {
        this.thread = thread;
        this.dice = dice;
    }

    @Override
    public void execute(Runnable task) {
        thread.after(dice.between(200, 20_000), task);
    }

    @Override
    public void shutdown() {
    }

    @Override
    public List<Runnable> shutdownNow() {
        return List.of();
    }

    @Override
    public boolean isShutdown() {
        return false;
    }

    @Override
    public boolean isTerminated() {
        return false;
    }

    @Override
    public boolean awaitTermination(long timeout, TimeUnit unit) {
        return true;
    }
}
