import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartition;

/** How the broker itself describes groups: reads lines "kind group" on stdin, writes a line of JSON for each. */
public class GroupTruth {
    static String quoted(Object value) {
        return "\"" + value + "\"";
    }

    static String partitions(Collection<TopicPartition> partitions) {
        StringJoiner all = new StringJoiner(",", "[", "]");
        for (TopicPartition p : partitions) all.add("[" + quoted(p.topic()) + "," + p.partition() + "]");
        return all.toString();
    }

    static String tasks(StreamsGroupMemberAssignment assignment) {
        StringJoiner all = new StringJoiner(",", "[", "]");
        for (StreamsGroupMemberAssignment.TaskIds ids : assignment.activeTasks())
            for (int p : ids.partitions()) all.add("[" + quoted(ids.subtopologyId()) + "," + p + "]");
        return all.toString();
    }

    static String member(String id, Object epoch, String assignment, String target) {
        return quoted(id) + ":{\"epoch\":" + epoch + ",\"assignment\":" + assignment + ",\"target\":" + target + "}";
    }

    static String group(Object state, Object epoch, Object assignmentEpoch, StringJoiner members) {
        return "{\"state\":" + quoted(state) + ",\"epoch\":" + epoch + ",\"assignment_epoch\":" + assignmentEpoch
            + ",\"members\":" + members + "}";
    }

    static String consumers(ConsumerGroupDescription group) {
        StringJoiner members = new StringJoiner(",", "{", "}");
        for (MemberDescription m : group.members()) {
            String target = m.targetAssignment().map(a -> partitions(a.topicPartitions())).orElse("null");
            members.add(member(m.consumerId(), m.memberEpoch().orElse(null),
                partitions(m.assignment().topicPartitions()), target));
        }
        return group(group.groupState(), group.groupEpoch().orElse(null),
            group.targetAssignmentEpoch().orElse(null), members);
    }

    /** Several at once; those whose coordinator does not answer in time are left out. */
    static String every(Admin admin, List<String> names) {
        DescribeConsumerGroupsOptions options = new DescribeConsumerGroupsOptions().timeoutMs(3000);
        StringJoiner all = new StringJoiner(",", "{", "}");
        admin.describeConsumerGroups(names, options).describedGroups().forEach((name, future) -> {
            try {
                all.add(quoted(name) + ":" + consumers(future.get()));
            } catch (InterruptedException | ExecutionException error) {
                // nobody answers for it
            }
        });
        return all.toString();
    }

    static String describe(Admin admin, String kind, String name) throws Exception {
        StringJoiner members = new StringJoiner(",", "{", "}");
        switch (kind) {
            case "every" -> {
                return every(admin, List.of(name.split(",")));
            }
            case "share" -> {
                ShareGroupDescription group = admin.describeShareGroups(List.of(name)).all().get().get(name);
                for (ShareMemberDescription m : group.members()) {
                    String owned = partitions(m.assignment().topicPartitions());
                    members.add(member(m.consumerId(), m.memberEpoch(), owned, "null"));
                }
                return group(group.groupState(), group.groupEpoch(), group.targetAssignmentEpoch(), members);
            }
            case "streams" -> {
                StreamsGroupDescription group = admin.describeStreamsGroups(List.of(name)).all().get().get(name);
                for (StreamsGroupMemberDescription m : group.members())
                    members.add(member(m.memberId(), m.memberEpoch(), tasks(m.assignment()),
                        tasks(m.targetAssignment())));
                return group(group.groupState(), group.groupEpoch(), group.targetAssignmentEpoch(), members);
            }
            default -> {
                return consumers(admin.describeConsumerGroups(List.of(name)).all().get().get(name));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0])); Scanner in = new Scanner(System.in)) {
            while (in.hasNextLine()) {
                String[] words = in.nextLine().split(" ");
                String answer;
                try {
                    answer = describe(admin, words[0], words[1]);
                } catch (Exception error) {
                    answer = "{\"error\":" + quoted(error.getClass().getName()) + "}";
                }
                System.out.println(answer);
                System.out.flush();
            }
        }
    }
}
