package oracle;

/** A client application, across its restarts. */
final class Actor {
    private final World world;
    private final Plan.Client plan;
    private Client client;
    private int runs = 0;

    Actor(World world, Plan.Client plan) {
        this.world = world;
        this.plan = plan;
    }

    boolean isAlive() {
        return client != null && client.isAlive();
    }

    Client client() {
        return client;
    }

    void start() {
        if (isAlive()) return;
        client = make(runs++);
        client.start();
    }

    private Client make(int run) {
        return switch (plan.protocol()) {
            case "classic" -> new ClassicConsumer(world, plan, run);
            case "consumer" -> new ModernConsumer(world, plan, run);
            case "share" -> new ShareConsumer(world, plan, run);
            case "streams" -> new StreamsClient(world, plan, run);
            default -> throw new IllegalArgumentException(plan.protocol());
        };
    }
}
