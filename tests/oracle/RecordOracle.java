import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolAssignmentJsonConverter;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.ConsumerProtocolSubscriptionJsonConverter;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * How Kafka itself decodes records of __consumer_offsets: the oracle for our decoder.
 *
 * RecordOracle SEED COUNT prints, for every record type and value version, COUNT random records made with Kafka's
 * generated classes, and for each of them COPIES damaged copies. RecordOracle - judges the lines of stdin instead. Each
 * line is {"key": hex, "value": hex | null, "expected": what `decode` has to print, without "error"}.
 *
 * RecordOracle SEED COUNT blobs does so for members' subscriptions and assignments: {"kind": "subscription" |
 * "assignment", "blob": hex, "expected": Kafka's JSON, null if Kafka cannot read it}.
 */
public class RecordOracle {
    static final int COPIES = 3;
    static final ObjectMapper JSON = JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
    static final HexFormat HEX = HexFormat.of();
    static final Map<String, Boolean> NULLABLE = new HashMap<>();

    final Random random;

    RecordOracle(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, "US-ASCII");
        if (args[0].equals("-")) {
            for (String line : new String(System.in.readAllBytes(), "UTF-8").split("\n")) {
                var row = JSON.readTree(line);
                out.println(JSON.writeValueAsString(judge(bytes(row.get("key").textValue()), bytes(row.get("value").textValue()))));
            }
        } else {
            RecordOracle oracle = new RecordOracle(Long.parseLong(args[0]));
            int count = Integer.parseInt(args[1]);
            if (args.length > 2) oracle.printBlobs(count, out);
            else for (CoordinatorRecordType type : CoordinatorRecordType.values())
                for (short v = type.lowestSupportedVersion(); v <= type.highestSupportedVersion(); v++)
                    for (int i = 0; i < count; i++) oracle.print(type, v, out);
        }
        out.flush();
    }

    static byte[] bytes(String hex) {
        return hex == null ? null : HEX.parseHex(hex);
    }

    void print(CoordinatorRecordType type, short version, PrintStream out) throws Exception {
        byte[] key = null, value = null;
        while (value == null) {
            try {
                key = MessageUtil.toCoordinatorTypePrefixedBytes((ApiMessage) fill(type.newRecordKey(), (short) 0));
                value = MessageUtil.toVersionPrefixedBytes(version, fill(type.newRecordValue(), version));
            } catch (UnsupportedVersionException tryAgain) {
                // a field that this version does not have was set
            }
        }
        out.println(JSON.writeValueAsString(judge(key, value)));
        for (int copy = 0; copy < COPIES; copy++)
            out.println(JSON.writeValueAsString(random.nextInt(4) == 0 ? judge(damage(key), value) : judge(key, damage(value))));
    }

    void printBlobs(int count, PrintStream out) throws Exception {
        for (short version = 0; version <= ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION; version++)
            for (int i = 0; i < count; i++)
                for (Message made : List.of(new ConsumerProtocolSubscription(), new ConsumerProtocolAssignment())) {
                    byte[] blob = MessageUtil.toVersionPrefixedBytes(version, fill(made, version));
                    out.println(JSON.writeValueAsString(judgeBlob(made, blob)));
                    for (int copy = 0; copy < COPIES; copy++) out.println(JSON.writeValueAsString(judgeBlob(made, damage(blob))));
                }
    }

    // What Kafka says

    static ObjectNode judgeBlob(Message made, byte[] blob) {
        boolean subscription = made instanceof ConsumerProtocolSubscription;
        ObjectNode row = JSON.createObjectNode();
        row.put("kind", subscription ? "subscription" : "assignment").put("blob", HEX.formatHex(blob));
        try {
            ByteBuffer buffer = ByteBuffer.wrap(blob);
            short written = buffer.getShort();
            if (written < 0) return row.putNull("expected");
            short version = (short) Math.min(written, ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION);
            ByteBufferAccessor bytes = new ByteBufferAccessor(buffer);
            row.set("expected", subscription
                ? ConsumerProtocolSubscriptionJsonConverter.write(new ConsumerProtocolSubscription(bytes, version), version)
                : ConsumerProtocolAssignmentJsonConverter.write(new ConsumerProtocolAssignment(bytes, version), version));
        } catch (RuntimeException unreadable) {
            row.putNull("expected");
        }
        return row;
    }

    static ObjectNode judge(byte[] key, byte[] value) {
        ObjectNode row = JSON.createObjectNode();
        row.put("key", key == null ? null : HEX.formatHex(key));
        row.put("value", value == null ? null : HEX.formatHex(value));
        ObjectNode expected = row.putObject("expected");
        expected.put("outcome", "malformed").putNull("key").putNull("value");
        try {
            expected.put("outcome", read(key, value, expected));
        } catch (RuntimeException malformed) {
            // the outcome is what it was, the key is there if it could be read
        }
        return row;
    }

    static String read(byte[] key, byte[] value, ObjectNode expected) {
        if (key == null) return "no-key";
        ByteBuffer keyBuffer = ByteBuffer.wrap(key);
        short id = keyBuffer.getShort();
        CoordinatorRecordType type;
        try {
            type = CoordinatorRecordType.fromId(id);
        } catch (UnsupportedVersionException unknown) {
            return "unknown-type";
        }
        ApiMessage keyMessage = whole(type.newRecordKey(), keyBuffer, (short) 0);
        expected.putObject("key").put("type", id).set("data",
            CoordinatorRecordJsonConverters.writeRecordKeyAsJson(keyMessage));
        if (value == null) return "tombstone";
        ByteBuffer valueBuffer = ByteBuffer.wrap(value);
        short version = valueBuffer.getShort();
        if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion())
            return "unknown-version";
        ApiMessage valueMessage = whole(type.newRecordValue(), valueBuffer, version);
        expected.putObject("value").put("version", version).set("data",
            CoordinatorRecordJsonConverters.writeRecordValueAsJson(valueMessage, version));
        return "decoded";
    }

    static ApiMessage whole(ApiMessage message, ByteBuffer buffer, short version) {
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) throw new IllegalArgumentException("bytes left over");
        return message;
    }

    // Random messages

    Message fill(Message message, short version) throws Exception {
        for (Method setter : setters(message)) {
            if (random.nextInt(5) == 0) continue; // stays at its default
            Object value = nullable(message, setter) && random.nextInt(4) == 0
                ? null : any(setter.getGenericParameterTypes()[0], version);
            try {
                setter.invoke(message, value);
            } catch (InvocationTargetException unsigned) {
                setter.invoke(message, (Integer) value & 0xffff);
            }
        }
        if (random.nextInt(4) == 0 && flexible(message, version)) {
            message.unknownTaggedFields().add(new RawTaggedField(9, any(byte[].class)));
            message.unknownTaggedFields().add(new RawTaggedField(1_000 + random.nextInt(1 << 30), any(byte[].class)));
        }
        return message;
    }

    static List<Method> setters(Message message) {
        List<Method> setters = new ArrayList<>();
        for (Method method : message.getClass().getMethods())
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) setters.add(method);
        setters.sort(Comparator.comparing(Method::getName)); // reflection has no order, a seed needs one
        return setters;
    }

    /** Whether the newest version can write null into this field. */
    static boolean nullable(Message message, Method setter) throws Exception {
        if (setter.getParameterTypes()[0].isPrimitive()) return false;
        String name = message.getClass().getName() + setter.getName();
        if (!NULLABLE.containsKey(name)) {
            Message probe = message.getClass().getDeclaredConstructor().newInstance();
            setter.invoke(probe, (Object) null);
            boolean written;
            try {
                MessageUtil.toVersionPrefixedBytes(probe.highestSupportedVersion(), probe);
                written = true;
            } catch (NullPointerException notNullable) {
                written = false;
            }
            NULLABLE.put(name, written);
        }
        return NULLABLE.get(name);
    }

    static boolean flexible(Message message, short version) throws Exception {
        Field[] fields = message.getClass().getFields();
        boolean key = Arrays.stream(fields).anyMatch(f -> f.getName().equals("SCHEMAS"))
            && message.getClass().getSimpleName().endsWith("Key");
        Message probe = message.getClass().getDeclaredConstructor().newInstance();
        probe.unknownTaggedFields().add(new RawTaggedField(9, new byte[0]));
        try {
            MessageUtil.toVersionPrefixedBytes(version, probe);
            return !key;
        } catch (UnsupportedVersionException notFlexible) {
            return false;
        }
    }

    Object any(Type type, short version) throws Exception {
        if (type instanceof ParameterizedType list) {
            List<Object> elements = new ArrayList<>();
            for (int i = random.nextInt(4); i > 0; i--) elements.add(any(list.getActualTypeArguments()[0], version));
            return elements;
        }
        Class<?> kind = (Class<?>) type;
        if (Collection.class.isAssignableFrom(kind)) { // a subclass of a collection of messages
            @SuppressWarnings("unchecked")
            Collection<Object> elements = (Collection<Object>) kind.getDeclaredConstructor().newInstance();
            Type of = ((ParameterizedType) kind.getGenericSuperclass()).getActualTypeArguments()[0];
            for (int i = random.nextInt(4); i > 0; i--) elements.add(any(of, version));
            return elements;
        }
        if (Message.class.isAssignableFrom(kind))
            return fill((Message) kind.getDeclaredConstructor().newInstance(), version);
        return any(kind);
    }

    @SuppressWarnings("unchecked")
    <T> T any(Class<T> kind) {
        if (kind == byte.class) return (T) (Object) (byte) number();
        if (kind == short.class || kind == Short.class) return (T) (Object) (short) number();
        if (kind == int.class || kind == Integer.class) return (T) (Object) (int) number();
        if (kind == long.class || kind == Long.class) return (T) (Object) number();
        if (kind == Uuid.class)
            return (T) (random.nextInt(4) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong()));
        if (kind == String.class) return (T) text();
        byte[] blob = new byte[random.nextInt(5) == 0 ? 200 : random.nextInt(8)];
        random.nextBytes(blob);
        if (kind == byte[].class) return (T) blob;
        if (kind == ByteBuffer.class) return (T) ByteBuffer.wrap(blob);
        throw new IllegalStateException("no generator for " + kind);
    }

    long number() {
        long[] corners = {0, 0, 1, -1, Byte.MAX_VALUE, Short.MIN_VALUE, Short.MAX_VALUE, Integer.MIN_VALUE,
            Integer.MAX_VALUE, Long.MIN_VALUE, Long.MAX_VALUE, 1_700_000_000_000L};
        return random.nextBoolean() ? corners[random.nextInt(corners.length)] : random.nextLong();
    }

    String text() {
        String[] words = {"", "g", "my-group", "größe", "グループ", "\uD83D\uDE80 rocket", "\u0000\t\"\\\n", "\u2028</script>",
            "~~~~~~~~~~~~", "\uFFFD\uFEFF"};
        String word = words[random.nextInt(words.length)];
        return random.nextInt(2_000) == 0 ? "x".repeat(Short.MAX_VALUE) : word.repeat(1 + random.nextInt(3));
    }

    // Damage

    byte[] damage(byte[] whole) {
        byte[] bytes = whole.clone();
        int at = random.nextInt(bytes.length);
        switch (random.nextInt(6)) {
            case 0: return Arrays.copyOf(bytes, at);
            case 1: return Arrays.copyOf(bytes, bytes.length + 1 + random.nextInt(3));
            case 2: bytes[at] = (byte) random.nextInt(256); return bytes;
            case 3: bytes[at] = (byte) (random.nextBoolean() ? 0xff : 0x80); return bytes;
            case 4: return overlong(bytes, at);
            default: return scramble(bytes);
        }
    }

    /** A byte below 0x80, where it is a varint, written in up to six bytes. */
    byte[] overlong(byte[] bytes, int at) {
        int more = 1 + random.nextInt(5);
        byte[] longer = new byte[bytes.length + more];
        System.arraycopy(bytes, 0, longer, 0, at);
        System.arraycopy(bytes, at, longer, at + more, bytes.length - at);
        longer[at] = (byte) (bytes[at] | 0x80);
        for (int i = 1; i <= more; i++) longer[at + i] = (byte) (i == more ? random.nextInt(3) * 8 : 0x80);
        return longer;
    }

    /** Bytes that are seldom UTF-8 in place of every run of "~". */
    byte[] scramble(byte[] bytes) {
        int[] likely = {0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0,
            0xf1, 0xf4, 0xf5, 0xf8, 0xff, 'a'};
        for (int i = 0; i < bytes.length; i++)
            if (bytes[i] == '~') bytes[i] = (byte) likely[random.nextInt(likely.length)];
        return bytes;
    }
}
