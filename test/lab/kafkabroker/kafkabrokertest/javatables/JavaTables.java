import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedRecord;

/**
 * Builds two Kafka Streams tables of each topic, up to its current end, as any program could: a
 * KTable and a versioned table. It prints a line for each row: the kind of the table, the key and
 * the value, separated by tabs.
 *
 * <p>Its arguments are the address of the brokers and the topics.
 */
public class JavaTables {
  // The caller does not wait longer. If the caller is gone, nothing else ends this process.
  private static final Duration LIMIT = Duration.ofMinutes(3);

  public static void main(String[] args) throws Exception {
    List<String> topics = List.of(args).subList(1, args.length);
    Properties brokers = new Properties();
    brokers.put("bootstrap.servers", args[0]);
    try (Admin admin = Admin.create(brokers)) {
      print(admin, "table", args[0], topics, store -> Materialized.as(Stores.inMemoryKeyValueStore(store)), KeyQuery::withKey, value -> (byte[]) value);
      print(
          admin,
          "versioned",
          args[0],
          topics,
          store -> Materialized.as(Stores.persistentVersionedKeyValueStore(store, Duration.ofDays(1))),
          VersionedKeyQuery::withKey,
          value -> (byte[]) ((VersionedRecord<?>) value).value());
    }
  }

  private static void print(
      Admin admin, String kind, String brokers, List<String> topics,
      Function<String, Materialized<String, byte[], KeyValueStore<Bytes, byte[]>>> store,
      Function<String, Query<?>> query, Function<Object, byte[]> bytes)
      throws Exception {
    String id = kind + "-of-" + topics.get(0);
    Properties config = new Properties();
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
    config.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("javatables").toString());
    config.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE); // a topic is the changelog of its table
    config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
    config.put("auto.offset.reset", "earliest");
    config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // so that rows are visible at once
    Map<TopicPartition, Long> ends = ends(admin, topics);
    Map<String, Set<String>> keys = new HashMap<>(); // by topic
    StreamsBuilder builder = new StreamsBuilder();
    for (String topic : topics) {
      Set<String> of = new ConcurrentSkipListSet<>();
      keys.put(topic, of);
      builder.table(topic, Consumed.with(Serdes.String(), Serdes.ByteArray()), store.apply(topic)).toStream().foreach((key, value) -> of.add(key));
    }
    try (KafkaStreams streams = new KafkaStreams(builder.build(config), config)) {
      streams.start();
      Instant deadline = Instant.now().plus(LIMIT);
      while (!isAt(ends, admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get())) {
        if (Instant.now().isAfter(deadline)) {
          throw new IllegalStateException(kind + " does not come to the ends " + ends);
        }
        Thread.sleep(50);
      }
      for (String topic : topics) {
        for (String key : keys.get(topic)) {
          for (QueryResult<?> row : streams.query(StateQueryRequest.inStore(topic).withQuery(query.apply(key))).getPartitionResults().values()) {
            if (row.isSuccess() && row.getResult() != null) {
              System.out.println(kind + "\t" + key + "\t" + new String(bytes.apply(row.getResult()), StandardCharsets.UTF_8));
            }
          }
        }
      }
    } finally {
      Files.walk(Path.of(config.getProperty(StreamsConfig.STATE_DIR_CONFIG)))
          .sorted(Comparator.reverseOrder())
          .forEach(path -> path.toFile().delete());
    }
  }

  // The ends of the partitions that have records.
  private static Map<TopicPartition, Long> ends(Admin admin, List<String> topics) throws Exception {
    Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
    admin.describeTopics(topics).allTopicNames().get()
        .forEach((topic, of) -> of.partitions().forEach(p -> latest.put(new TopicPartition(topic, p.partition()), OffsetSpec.latest())));
    Map<TopicPartition, Long> ends = new HashMap<>();
    admin.listOffsets(latest).all().get().forEach((partition, end) -> ends.put(partition, end.offset()));
    ends.values().removeIf(end -> end == 0);
    return ends;
  }

  private static boolean isAt(Map<TopicPartition, Long> ends, Map<TopicPartition, OffsetAndMetadata> committed) {
    return ends.entrySet().stream()
        .allMatch(end -> committed.get(end.getKey()) != null && committed.get(end.getKey()).offset() >= end.getValue());
  }
}
