import io.cloudevents.kafka.KafkaMessageFactory;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Keeps a table of one resource that it reads from Kafka. See Table.
 *
 * <p>The program waits for the brokers (KAFKA_BROKERS) and the topic (TOPIC, by default kuberelay).
 * With a topic per resource, TOPIC is the topic of the resource, such as kuberelay.apps.deployments.
 */
class KafkaTable {
  private static final String TOPIC = Table.env("TOPIC", "kuberelay");
  // The consumer needs no group, because the table stores the positions.
  private static final Map<String, Object> CONFIG =
      Map.of(
          ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, Table.env("KAFKA_BROKERS", "localhost:9092"),
          ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
          ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false,
          ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");

  private final Table table = new Table();
  private final Admin admin = Admin.create(Map.of("bootstrap.servers", CONFIG.get("bootstrap.servers")));

  private KafkaTable() throws Exception {}

  public static void main(String[] args) throws Exception {
    KafkaTable program = new KafkaTable();
    while (true) {
      try (KafkaConsumer<String, byte[]> consumer =
          new KafkaConsumer<>(CONFIG, new StringDeserializer(), new ByteArrayDeserializer())) {
        program.follow(consumer);
      } catch (ExecutionException | KafkaException | IllegalStateException e) {
        System.out.println("waiting: " + e);
        Thread.sleep(1000);
      }
    }
  }

  private TopicDescription describe() throws Exception {
    return admin.describeTopics(List.of(TOPIC)).topicNameValues().get(TOPIC).get();
  }

  private void follow(KafkaConsumer<String, byte[]> consumer) throws Exception {
    TopicDescription topic = describe();
    List<TopicPartition> partitions =
        topic.partitions().stream().map(p -> new TopicPartition(TOPIC, p.partition())).toList();
    Map<Integer, long[]> bounds = new HashMap<>();
    consumer.beginningOffsets(partitions).forEach((p, first) -> bounds.put(p.partition(), new long[] {first, 0}));
    Map<TopicPartition, Long> target = consumer.endOffsets(partitions);
    target.forEach((p, end) -> bounds.get(p.partition())[1] = end);
    Map<Integer, Long> positions = table.open(topic.topicId().toString(), bounds);
    consumer.assign(partitions);
    bounds.forEach((n, b) -> consumer.seek(new TopicPartition(TOPIC, n), positions.getOrDefault(n, b[0])));
    while (true) {
      List<BusMessage> batch = new ArrayList<>();
      for (ConsumerRecord<String, byte[]> r : consumer.poll(Duration.ofSeconds(1))) {
        batch.add(new BusMessage(r.partition(), r.offset() + 1, Instant.ofEpochMilli(r.timestamp()), () -> entry(r)));
      }
      if (batch.isEmpty()) {
        TopicDescription now = describe();
        if (!now.topicId().equals(topic.topicId()) || now.partitions().size() != partitions.size()) {
          throw new IllegalStateException("the topic was recreated, or has another number of partitions");
        }
      }
      if (table.apply(batch)) {
        target = consumer.endOffsets(partitions); // the table may still lack changes in other partitions
      }
      if (target.entrySet().stream().allMatch(p -> consumer.position(p.getKey()) >= p.getValue())) {
        table.caughtUp();
      }
    }
  }

  /** A tombstone has neither a value nor attributes. A consistency point has attributes, but no value. */
  private static BusMessage.Entry entry(ConsumerRecord<String, byte[]> r) {
    boolean tombstone = r.value() == null && r.headers().lastHeader("ce_type") == null;
    return new BusMessage.Entry(r.key(), tombstone ? null : KafkaMessageFactory.createReader(r).toEvent());
  }
}
