import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;

/** The Java twin of consumer.py: arguments are key=value pairs, commands come on stdin, events go to stdout. */
public class GroupConsumer {
    static synchronized void tell(String event, String facts) {
        System.out.println("{\"event\":\"" + event + "\",\"at_ms\":" + System.currentTimeMillis() + facts + "}");
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> spec = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            spec.put(argument.substring(0, at), argument.substring(at + 1));
        }
        List<String> topics = Arrays.asList(spec.remove("topics").split(","));
        Properties config = new Properties();
        config.putAll(spec);
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        config.put("key.deserializer", bytes);
        config.put("value.deserializer", bytes);
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> {
            try (Scanner lines = new Scanner(System.in)) {
                while (lines.hasNextLine()) commands.add(lines.nextLine());
            }
            Runtime.getRuntime().halt(3); // the scenario is gone, so is its consumer
        });
        reader.setDaemon(true);
        reader.start();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config);
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { tell("revoked", ""); }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                StringJoiner where = new StringJoiner(",", "[", "]");
                for (TopicPartition p : partitions) where.add("[\"" + p.topic() + "\"," + p.partition() + "]");
                ConsumerGroupMetadata group = consumer.groupMetadata();
                tell("assigned", ",\"member_id\":\"" + group.memberId() + "\",\"generation\":" + group.generationId()
                    + ",\"partitions\":" + where);
            }
        };
        consumer.subscribe(topics, listener);
        tell("started", ",\"pid\":" + ProcessHandle.current().pid());
        while (true) {
            try {
                consumer.poll(Duration.ofMillis(200));
            } catch (RuntimeException error) {
                tell("error", ",\"text\":\"" + error.getClass().getName() + "\"");
                Thread.sleep(200);
            }
            for (String command = commands.poll(); command != null; command = commands.poll()) {
                String[] words = command.trim().split(" ", 2);
                switch (words[0]) {
                    case "stall" -> {
                        tell("stalled", "");
                        Thread.sleep((long) (Double.parseDouble(words[1]) * 1000));
                        tell("polling", "");
                    }
                    case "subscribe" -> consumer.subscribe(Arrays.asList(words[1].split(",")), listener);
                    case "unsubscribe" -> consumer.unsubscribe();
                    case "close" -> {
                        consumer.close();
                        tell("closed", "");
                        return;
                    }
                    default -> tell("error", ",\"text\":\"unknown command\"");
                }
            }
        }
    }
}
