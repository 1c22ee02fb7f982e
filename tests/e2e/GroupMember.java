import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group of one of the newer kinds, driven by lines on stdin. kind=share is Kafka's own share consumer;
 * kind=consumer and kind=streams send bare heartbeats, so that a member can be kept from giving up what it should.
 * Commands: hold (acknowledge nothing), release, away (epoch -2), close (epoch -1). Arguments are key=value pairs.
 */
public class GroupMember {
    static final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
    static Map<String, String> spec = new HashMap<>();
    static Socket socket;
    static int sent, epoch;
    static boolean hold;
    static String memberId = UUID.randomUUID().toString();

    static synchronized void tell(String event, String facts) {
        System.out.println("{\"event\":\"" + event + "\",\"at_ms\":" + System.currentTimeMillis() + facts + "}");
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            spec.put(argument.substring(0, at), argument.substring(at + 1));
        }
        Thread reader = new Thread(() -> {
            try (Scanner lines = new Scanner(System.in)) {
                while (lines.hasNextLine()) commands.add(lines.nextLine());
            }
            Runtime.getRuntime().halt(3); // the scenario is gone, so is its member
        });
        reader.setDaemon(true);
        reader.start();
        if (spec.get("kind").equals("share")) share();
        else heartbeats(spec.get("kind").equals("streams"));
    }

    static void share() {
        Properties config = new Properties();
        config.put("bootstrap.servers", spec.get("bootstrap"));
        config.put("group.id", spec.get("group"));
        config.put("client.id", spec.get("name"));
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config, bytes, bytes);
        consumer.subscribe(List.of(spec.get("topics").split(",")));
        tell("started", "");
        while (!"close".equals(commands.poll())) consumer.poll(Duration.ofMillis(200));
        consumer.close();
        tell("closed", "");
    }

    static AbstractResponse ask(AbstractRequest request, ApiKeys api) throws Exception {
        RequestHeader header = new RequestHeader(api, request.version(), spec.get("name"), ++sent);
        ByteBuffer bytes = request.serializeWithHeader(header);
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(bytes.remaining());
        out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        out.flush();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
    }

    static void heartbeats(boolean streams) throws Exception {
        String[] address = spec.get("bootstrap").split(",")[0].split(":");
        socket = new Socket(address[0], Integer.parseInt(address[1]));
        tell("started", ",\"member_id\":\"" + memberId + "\"");
        while (true) {
            if (streams) streamsHeartbeat();
            else consumerHeartbeat();
            String command = commands.poll(200, TimeUnit.MILLISECONDS);
            if (command == null) continue;
            switch (command) {
                case "hold" -> hold = true;
                case "release" -> hold = false;
                default -> {
                    epoch = command.equals("away") ? -2 : -1;
                    if (streams) streamsHeartbeat();
                    else consumerHeartbeat();
                    tell("closed", "");
                    return;
                }
            }
        }
    }

    static List<ConsumerGroupHeartbeatResponseData.TopicPartitions> given = List.of();

    static void consumerHeartbeat() throws Exception {
        ConsumerGroupHeartbeatRequestData data = new ConsumerGroupHeartbeatRequestData()
            .setGroupId(spec.get("group")).setMemberId(memberId).setMemberEpoch(epoch)
            .setInstanceId(spec.get("instance"));
        if (epoch == 0) {
            data.setRebalanceTimeoutMs(Integer.parseInt(spec.get("rebalance_timeout_ms")));
            if (spec.containsKey("regex")) data.setSubscribedTopicRegex(spec.get("regex"));
            else data.setSubscribedTopicNames(List.of(spec.get("topics").split(",")));
        }
        if (!hold && epoch >= 0) {
            List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = new ArrayList<>();
            for (var topic : epoch == 0 ? List.<ConsumerGroupHeartbeatResponseData.TopicPartitions>of() : given)
                owned.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions()
                    .setTopicId(topic.topicId()).setPartitions(topic.partitions()));
            data.setTopicPartitions(owned);
        }
        var request = new ConsumerGroupHeartbeatRequest.Builder(data).build((short) 1);
        var answer = ((ConsumerGroupHeartbeatResponse) ask(request, ApiKeys.CONSUMER_GROUP_HEARTBEAT)).data();
        if (answer.errorCode() != 0) refused(answer.errorCode());
        else {
            epoch = answer.memberEpoch();
            if (answer.assignment() != null) {
                given = answer.assignment().topicPartitions();
                tell("assigned", ",\"member_id\":\"" + memberId + "\"");
            }
        }
    }

    static List<StreamsGroupHeartbeatResponseData.TaskIds> tasks = List.of();

    static void streamsHeartbeat() throws Exception {
        StreamsGroupHeartbeatRequestData data = new StreamsGroupHeartbeatRequestData()
            .setGroupId(spec.get("group")).setMemberId(memberId).setMemberEpoch(epoch);
        if (epoch == 0) {
            var subtopology = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0")
                .setSourceTopics(List.of(spec.get("topics").split(",")));
            data.setRebalanceTimeoutMs(Integer.parseInt(spec.get("rebalance_timeout_ms")))
                .setProcessId(memberId).setClientTags(List.of())
                .setTopology(new StreamsGroupHeartbeatRequestData.Topology().setEpoch(1)
                    .setSubtopologies(List.of(subtopology)));
        }
        if (!hold && epoch >= 0) {
            List<StreamsGroupHeartbeatRequestData.TaskIds> owned = new ArrayList<>();
            for (var task : epoch == 0 ? List.<StreamsGroupHeartbeatResponseData.TaskIds>of() : tasks)
                owned.add(new StreamsGroupHeartbeatRequestData.TaskIds()
                    .setSubtopologyId(task.subtopologyId()).setPartitions(task.partitions()));
            data.setActiveTasks(owned).setStandbyTasks(List.of()).setWarmupTasks(List.of());
        }
        var request = new StreamsGroupHeartbeatRequest.Builder(data).build((short) 0);
        var answer = ((StreamsGroupHeartbeatResponse) ask(request, ApiKeys.STREAMS_GROUP_HEARTBEAT)).data();
        if (answer.errorCode() != 0) refused(answer.errorCode());
        else {
            epoch = answer.memberEpoch();
            if (answer.activeTasks() != null) {
                tasks = answer.activeTasks();
                tell("assigned", ",\"member_id\":\"" + memberId + "\"");
            }
        }
    }

    static void refused(int error) throws Exception {
        tell("refused", ",\"error\":" + error);
        Thread.sleep(500);
    }
}
