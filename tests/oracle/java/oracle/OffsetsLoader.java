package oracle;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoader;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/** How a new coordinator loads its log: all of the broker's replica, as Kafka's own loader does, after some time. */
final class OffsetsLoader implements CoordinatorLoader<CoordinatorRecord> {
    private final Broker broker;
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    private boolean isLoading = false;

    OffsetsLoader(Broker broker) {
        this.broker = broker;
    }

    boolean isLoading() {
        return isLoading;
    }

    @Override
    public CompletableFuture<LoadSummary> load(TopicPartition tp, CoordinatorPlayback<CoordinatorRecord> playback) {
        CompletableFuture<LoadSummary> loaded = new CompletableFuture<>();
        long startMs = broker.time().milliseconds();
        isLoading = true;
        broker.loading().after(broker.loadUs(), () -> {
            isLoading = false;
            try {
                loaded.complete(replay(playback, startMs));
            } catch (RuntimeException error) {
                loaded.completeExceptionally(error);
            }
        });
        return loaded;
    }

    private LoadSummary replay(CoordinatorPlayback<CoordinatorRecord> playback, long startMs) {
        Replica replica = broker.replica();
        for (Replica.Entry entry : replica.entries()) {
            CoordinatorRecord record = serde.deserialize(
                ByteBuffer.wrap(entry.key()), entry.value() == null ? null : ByteBuffer.wrap(entry.value()));
            playback.replay(entry.offset(), RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, record);
        }
        if (replica.endOffset() > 0) {
            playback.updateLastWrittenOffset(replica.endOffset());
            playback.updateLastCommittedOffset(replica.highWatermark());
        }
        return new LoadSummary(startMs, broker.time().milliseconds(), 0, replica.entries().size(), 0);
    }

    @Override
    public void close() {
    }
}
