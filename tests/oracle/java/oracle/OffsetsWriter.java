package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.coordinator.common.runtime.PartitionWriter;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** How the coordinator of one broker program writes: to the broker's replica, as long as it believes that it leads. */
final class OffsetsWriter implements PartitionWriter {
    private static final LogConfig CONFIG = new LogConfig(Map.of());

    private final Broker broker;
    private final OffsetsTopic topic;
    private final List<Listener> listeners = new ArrayList<>();

    OffsetsWriter(Broker broker, OffsetsTopic topic) {
        this.broker = broker;
        this.topic = topic;
    }

    void highWatermark(TopicPartition partition, long offset) {
        List.copyOf(listeners).forEach(listener -> listener.onHighWatermarkUpdated(partition, offset));
    }

    @Override
    public void registerListener(TopicPartition partition, Listener listener) {
        listeners.add(listener);
    }

    @Override
    public void deregisterListener(TopicPartition partition, Listener listener) {
        listeners.remove(listener);
    }

    @Override
    public LogConfig config(TopicPartition partition) {
        return CONFIG;
    }

    @Override
    public long append(TopicPartition partition, VerificationGuard guard, MemoryRecords records, short version) {
        if (!broker.believesToLead()) throw new NotLeaderOrFollowerException("not the leader of " + partition);
        for (Record record : records.records())
            broker.replica().append(record.timestamp(), record.key(), record.value());
        long end = broker.replica().endOffset();
        topic.appended(broker);
        return end;
    }

    @Override
    public CompletableFuture<VerificationGuard> maybeStartTransactionVerification(
        TopicPartition partition, String transactionalId, long producerId, short producerEpoch, int apiVersion
    ) {
        return CompletableFuture.completedFuture(VerificationGuard.SENTINEL);
    }

    @Override
    public CompletableFuture<Void> deleteRecords(TopicPartition partition, long beforeOffset) {
        return CompletableFuture.completedFuture(null);
    }
}
