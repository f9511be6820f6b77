import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import io.cloudevents.kafka.CloudEventDeserializer;
import io.cloudevents.types.Time;
import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * Reads each topic to its end three times: with a plain consumer, with a consumer that reads
 * only committed records, and with the CloudEvents SDK's deserializer. It prints a line of JSON
 * for each record.
 *
 * <p>Its arguments are the brokers' address and the topics.
 */
public class JavaConsumer {
  // The program ends itself, because the test may be killed before it can stop the program.
  private static final Duration LIMIT = Duration.ofMinutes(3);

  private final ObjectMapper json = new ObjectMapper();
  private final PrintStream out =
      new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
  private final Instant deadline = Instant.now().plus(LIMIT);
  private final String brokers;

  private JavaConsumer(String brokers) {
    this.brokers = brokers;
  }

  public static void main(String[] args) throws Exception {
    JavaConsumer consumer = new JavaConsumer(args[0]);
    for (String topic : List.of(args).subList(1, args.length)) {
      consumer.read(topic, "plain", "read_uncommitted", new ByteArrayDeserializer(), JavaConsumer::raw);
      consumer.read(topic, "committed", "read_committed", new ByteArrayDeserializer(), JavaConsumer::raw);
      consumer.read(topic, "cloudevents", "read_committed", new CloudEventDeserializer(), JavaConsumer::event);
    }
    consumer.out.flush();
  }

  private interface Describe<V> {
    void describe(V value, Map<String, Object> line);
  }

  private <V> void read(String topic, String reader, String isolation, Deserializer<V> values, Describe<V> describe)
      throws Exception {
    Map<String, Object> config =
        Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, brokers,
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation,
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
    try (KafkaConsumer<byte[], V> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), values)) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(topic).stream()
              .map(p -> new TopicPartition(topic, p.partition()))
              .collect(Collectors.toList());
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
        if (Instant.now().isAfter(deadline)) {
          throw new IllegalStateException("topic " + topic + " was not read to its end " + ends + " in time");
        }
        for (ConsumerRecord<byte[], V> record : consumer.poll(Duration.ofMillis(100))) {
          print(reader, record, describe);
        }
      }
    }
  }

  private <V> void print(String reader, ConsumerRecord<byte[], V> record, Describe<V> describe) throws Exception {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("reader", reader);
    line.put("topic", record.topic());
    line.put("partition", record.partition());
    line.put("offset", record.offset());
    line.put("timestamp", record.timestamp());
    line.put("key", record.key());
    List<Map<String, Object>> headers = new ArrayList<>();
    for (Header h : record.headers()) {
      Map<String, Object> header = new LinkedHashMap<>();
      header.put("key", h.key());
      header.put("value", h.value());
      headers.add(header);
    }
    line.put("headers", headers);
    describe.describe(record.value(), line);
    out.println(json.writeValueAsString(line)); // bytes are written in base64
  }

  private static void raw(byte[] value, Map<String, Object> line) {
    line.put("value", value);
  }

  private static void event(CloudEvent event, Map<String, Object> line) {
    if (event == null) { // a tombstone, which the deserializer does not get
      return;
    }
    Map<String, String> attributes = new TreeMap<>();
    for (String name : event.getAttributeNames()) {
      attributes.put(name, text(event.getAttribute(name)));
    }
    for (String name : event.getExtensionNames()) {
      attributes.put(name, text(event.getExtension(name)));
    }
    line.put("attributes", attributes);
    line.put("value", event.getData().toBytes());
  }

  private static String text(Object value) {
    return value instanceof OffsetDateTime ? Time.writeTime((OffsetDateTime) value) : value.toString();
  }
}
