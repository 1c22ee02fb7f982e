package oracle;

import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ConsumerGroupHeartbeatRequest;
import org.apache.kafka.common.requests.ConsumerGroupHeartbeatResponse;
import org.apache.kafka.common.requests.DeleteGroupsRequest;
import org.apache.kafka.common.requests.DeleteGroupsResponse;
import org.apache.kafka.common.message.DeleteGroupsResponseData;
import org.apache.kafka.common.requests.HeartbeatRequest;
import org.apache.kafka.common.requests.HeartbeatResponse;
import org.apache.kafka.common.requests.JoinGroupRequest;
import org.apache.kafka.common.requests.JoinGroupResponse;
import org.apache.kafka.common.requests.LeaveGroupRequest;
import org.apache.kafka.common.requests.LeaveGroupResponse;
import org.apache.kafka.common.requests.ListGroupsRequest;
import org.apache.kafka.common.requests.ListGroupsResponse;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetCommitResponse;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.ShareGroupHeartbeatRequest;
import org.apache.kafka.common.requests.ShareGroupHeartbeatResponse;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;
import org.apache.kafka.common.requests.SyncGroupRequest;
import org.apache.kafka.common.requests.SyncGroupResponse;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.coordinator.group.GroupCoordinatorService;

/** What {@code KafkaApis} does between a request and the group coordinator, without authorization. */
final class Apis {
    private static final BufferSupplier BUFFERS = BufferSupplier.NO_CACHING;

    private final GroupCoordinatorService coordinator;

    Apis(GroupCoordinatorService coordinator) {
        this.coordinator = coordinator;
    }

    /** Returns the answer to any request; an exception is answered with its error. */
    CompletableFuture<AbstractResponse> handle(RequestContext context, AbstractRequest request) {
        try {
            return dispatch(context, request).exceptionally(request::getErrorResponse);
        } catch (RuntimeException error) {
            return CompletableFuture.completedFuture(request.getErrorResponse(error));
        }
    }

    private CompletableFuture<AbstractResponse> dispatch(RequestContext context, AbstractRequest request) {
        short version = context.apiVersion();
        return switch (request.apiKey()) {
            case JOIN_GROUP -> answer(
                coordinator.joinGroup(context, ((JoinGroupRequest) request).data(), BUFFERS),
                data -> new JoinGroupResponse(data, version));
            case SYNC_GROUP -> sync(context, (SyncGroupRequest) request);
            case HEARTBEAT -> answer(
                coordinator.heartbeat(context, ((HeartbeatRequest) request).data()), HeartbeatResponse::new);
            case LEAVE_GROUP -> answer(
                coordinator.leaveGroup(context, ((LeaveGroupRequest) request).normalizedData()),
                data -> new LeaveGroupResponse(data, version));
            case OFFSET_COMMIT -> answer(
                coordinator.commitOffsets(context, ((OffsetCommitRequest) request).data(), BUFFERS),
                OffsetCommitResponse::new);
            case CONSUMER_GROUP_HEARTBEAT -> answer(
                coordinator.consumerGroupHeartbeat(context, ((ConsumerGroupHeartbeatRequest) request).data()),
                ConsumerGroupHeartbeatResponse::new);
            case SHARE_GROUP_HEARTBEAT -> answer(
                coordinator.shareGroupHeartbeat(context, ((ShareGroupHeartbeatRequest) request).data()),
                ShareGroupHeartbeatResponse::new);
            case STREAMS_GROUP_HEARTBEAT -> answer(
                coordinator.streamsGroupHeartbeat(context, ((StreamsGroupHeartbeatRequest) request).data()),
                result -> new StreamsGroupHeartbeatResponse(result.data()));
            case LIST_GROUPS -> answer(
                coordinator.listGroups(context, ((ListGroupsRequest) request).data()), ListGroupsResponse::new);
            case DELETE_GROUPS -> answer(
                coordinator.deleteGroups(context, ((DeleteGroupsRequest) request).data().groupsNames(), BUFFERS),
                results -> new DeleteGroupsResponse(new DeleteGroupsResponseData().setResults(results)));
            default -> throw Errors.UNSUPPORTED_VERSION.exception();
        };
    }

    private CompletableFuture<AbstractResponse> sync(RequestContext context, SyncGroupRequest request) {
        if (!request.areMandatoryProtocolTypeAndNamePresent())
            throw Errors.INCONSISTENT_GROUP_PROTOCOL.exception();
        return answer(coordinator.syncGroup(context, request.data(), BUFFERS), SyncGroupResponse::new);
    }

    private static <T> CompletableFuture<AbstractResponse> answer(
        CompletableFuture<T> data, Function<T, AbstractResponse> response
    ) {
        return data.thenApply(response);
    }
}
