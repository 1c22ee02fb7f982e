package oracle;

import java.util.List;
import java.util.Random;

/**
 * The random numbers of one owner (a broker, a client), drawn from the life's seed and the owner's name. So they stay
 * the same if somebody else is left out of the life.
 */
final class Dice {
    private final Random random;

    Dice(long seed, String owner) {
        random = new Random(seed * 0x9E3779B97F4A7C15L + owner.hashCode());
        random.nextLong();
    }

    /** From low to high, both included. */
    long between(long low, long high) {
        return high <= low ? low : low + (long) (random.nextDouble() * (high - low + 1));
    }

    long between(List<Long> range) {
        return between(range.get(0), range.get(1));
    }

    void fill(byte[] bytes) {
        random.nextBytes(bytes);
    }
}
