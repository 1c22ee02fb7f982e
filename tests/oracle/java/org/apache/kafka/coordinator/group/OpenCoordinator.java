package org.apache.kafka.coordinator.group;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEventProcessor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoader;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime;
import org.apache.kafka.coordinator.common.runtime.PartitionWriter;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.share.persister.NoOpStatePersister;
import org.apache.kafka.server.util.PartitionMetadataClient;
import org.apache.kafka.server.util.timer.Timer;

/**
 * A broker's group coordinator, built as {@link GroupCoordinatorService.Builder} does, but with the caller's event loop
 * and background threads, and with access to its live groups. It is in this package because Kafka's constructor can be
 * called only from here.
 */
public final class OpenCoordinator {
    private final GroupCoordinatorService service;
    private final LiveGroups liveGroups;

    /** The parts of a coordinator that come from the caller. */
    public record Parts(
        int nodeId, Map<String, String> properties, Map<String, Map<String, String>> groupProperties, Time time,
        Timer timer, CoordinatorEventProcessor processor, ExecutorService background, PartitionWriter writer,
        CoordinatorLoader<CoordinatorRecord> loader) {
    }

    public OpenCoordinator(Parts parts) {
        AbstractConfig all = new AbstractConfig(
            Utils.mergeConfigs(List.of(GroupCoordinatorConfig.CONFIG_DEF, ShareGroupConfig.CONFIG_DEF)),
            parts.properties(), false);
        GroupCoordinatorConfig config = new GroupCoordinatorConfig(all);
        ShareGroupConfig shareConfig = new ShareGroupConfig(all);
        GroupConfigManager groupConfigs =
            new GroupConfigManager(new HashMap<>(config.extractGroupConfigMap(shareConfig)), config, shareConfig);
        parts.groupProperties().forEach((group, properties) ->
            groupConfigs.updateGroupConfig(group, Utils.mkProperties(properties)));
        GroupCoordinatorMetrics metrics = NoMetrics.ofGroups();
        liveGroups = new LiveGroups();
        LogContext log = new LogContext(String.format("[GroupCoordinator id=%d] ", parts.nodeId()));
        service = new GroupCoordinatorService(
            log, config, runtime(parts, config, groupConfigs, metrics, log), metrics, groupConfigs,
            new NoOpStatePersister(), parts.timer(), new NoOffsets());
    }

    private CoordinatorRuntime<GroupCoordinatorShard, CoordinatorRecord> runtime(
        Parts parts, GroupCoordinatorConfig config, GroupConfigManager groupConfigs, GroupCoordinatorMetrics metrics,
        LogContext log
    ) {
        return new CoordinatorRuntime.Builder<GroupCoordinatorShard, CoordinatorRecord>()
            .withTime(parts.time())
            .withTimer(parts.timer())
            .withLogPrefix("GroupCoordinator id=" + parts.nodeId())
            .withLogContext(log)
            .withEventProcessor(parts.processor())
            .withPartitionWriter(parts.writer())
            .withLoader(parts.loader())
            .withCoordinatorShardBuilderSupplier(() -> liveGroups.watch(config, groupConfigs, parts.time()))
            .withWriteTimeout(Duration.ofMillis(config.offsetCommitTimeoutMs()))
            .withCoordinatorRuntimeMetrics(new NoMetrics())
            .withCoordinatorMetrics(metrics)
            .withSerializer(new GroupCoordinatorRecordSerde())
            .withCompression(Compression.of(config.offsetTopicCompressionType()).build())
            .withAppendLingerMs(config.appendLingerMs())
            .withExecutorService(parts.background())
            .withCachedBufferMaxBytesSupplier(config::cachedBufferMaxBytes)
            .build();
    }

    /** End offsets of the topics that share groups read; nobody asks for them here. */
    private static final class NoOffsets implements PartitionMetadataClient {
        @Override
        public Map<TopicPartition, CompletableFuture<OffsetResponse>> listLatestOffsets(Set<TopicPartition> partitions) {
            return Map.of();
        }

        @Override
        public void close() {
        }
    }

    public GroupCoordinatorService service() {
        return service;
    }

    public LiveGroups liveGroups() {
        return liveGroups;
    }
}
