package oracle;

import java.security.Provider;
import java.security.SecureRandom;
import java.security.SecureRandomSpi;
import java.security.Security;

/**
 * Makes {@code UUID.randomUUID} repeatable: Kafka draws member ids from it, and the order of its hash maps (who leads
 * next, which protocol wins a tie) depends on them. Ids come from whoever is asking, see {@link #drawFrom}.
 */
public final class SeededIds extends SecureRandomSpi {
    private static Dice dice = new Dice(0, "nobody");

    /** To be called before anybody in this JVM has asked for a random id. */
    static void install() {
        Security.insertProviderAt(new Seeded(), 1);
        if (!new SecureRandom().getAlgorithm().equals("Seeded")) throw new IllegalStateException("too late");
    }

    static void drawFrom(Dice next) {
        dice = next;
    }

    static Dice drawnFrom() {
        return dice;
    }

    @Override
    protected void engineSetSeed(byte[] seed) {
    }

    @Override
    protected void engineNextBytes(byte[] bytes) {
        dice.fill(bytes);
    }

    @Override
    protected byte[] engineGenerateSeed(int count) {
        byte[] seed = new byte[count];
        dice.fill(seed);
        return seed;
    }

    private static final class Seeded extends Provider {
        Seeded() {
            super("Seeded", "1", "random ids from a life's seed");
            put("SecureRandom.Seeded", SeededIds.class.getName());
        }
    }
}
