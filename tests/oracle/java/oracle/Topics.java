package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/** The topics that groups read, as brokers and clients see them. */
final class Topics {
    private static final Node NODE = new Node(1, "10.0.0.1", 9092);

    /** What a change of the topics means to a broker. */
    record Change(MetadataDelta delta, MetadataImage image) {
    }

    private final Map<String, Integer> partitions = new TreeMap<>();
    private MetadataImage image = MetadataImage.EMPTY;
    private long changes = 0;

    static Uuid id(String topic) {
        long hash = topic.hashCode();
        return new Uuid(0x4000L | hash << 20, 0x8000000000000000L | hash);
    }

    /** Creates topics, or lets them grow. */
    Change grow(Map<String, Integer> wanted) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        wanted.forEach((topic, count) -> {
            if (!partitions.containsKey(topic)) delta.replay(new TopicRecord().setName(topic).setTopicId(id(topic)));
            for (int number = partitions.getOrDefault(topic, 0); number < count; number++)
                delta.replay(new PartitionRecord().setTopicId(id(topic)).setPartitionId(number).setLeader(1)
                    .setReplicas(List.of(1)).setIsr(List.of(1)));
            partitions.merge(topic, count, Math::max);
        });
        image = delta.apply(new MetadataProvenance(++changes, 0, 0, true));
        return new Change(delta, image);
    }

    /** All of them at once, for a broker that starts. */
    Change all() {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        image.topics().topicsByName().forEach((topic, each) -> {
            delta.replay(new TopicRecord().setName(topic).setTopicId(id(topic)));
            each.partitions().keySet().forEach(number ->
                delta.replay(new PartitionRecord().setTopicId(id(topic)).setPartitionId(number).setLeader(1)
                    .setReplicas(List.of(1)).setIsr(List.of(1))));
        });
        return new Change(delta, image);
    }

    int partitions(String topic) {
        return partitions.getOrDefault(topic, 0);
    }

    Cluster cluster() {
        List<PartitionInfo> all = new ArrayList<>();
        partitions.forEach((topic, count) -> {
            for (int number = 0; number < count; number++)
                all.add(new PartitionInfo(topic, number, NODE, new Node[] {NODE}, new Node[] {NODE}));
        });
        return new Cluster("oracle", List.of(NODE), all, Set.of(), Set.of());
    }
}
