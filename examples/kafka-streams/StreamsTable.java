import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Keeps a table of one resource in a global store of Kafka Streams, and writes its rows to a file.
 *
 * <pre>
 * mvn -q compile dependency:copy-dependencies
 * KAFKA_BROKERS=localhost:9092 TOPIC=kuberelay RESOURCE=deployments.apps TABLE=table.txt STATE=state \
 *   java -cp 'target/classes:target/dependency/*' StreamsTable
 * </pre>
 *
 * <p>A row shows the last event of an object. Every instance has all rows, and needs no consumer group
 * and no topic of its own. The store and its position are on disk, so a program that was killed
 * continues where it stopped. The program waits for the brokers and the topic. It drops the store and
 * reads the topic again if the topic was recreated or lost its end, or if Kafka may have dropped deletes.
 *
 * <p>The file has only the rows of complete clusters. A cluster is complete when every partition has a
 * consistency point of the resource. If KUBERELAY_RESOLVED_INTERVAL is 0, the forwarder publishes no
 * points, and no cluster becomes complete. The columns are cluster, namespace, name, UID, version, and
 * whether the object was too large for the bus. The bus has only the metadata of such an object.
 *
 * <p>A KTable or GlobalKTable of the topic also has exactly the existing objects. But it has no headers,
 * so it doesn't show which objects are truncated or when the table is complete.
 */
class StreamsTable {
  private static final String TOPIC = env("TOPIC", "kuberelay"), STORE = Fill.STORE;
  private static final Path STATE = Path.of(env("STATE", "state")), KNOWN = STATE.resolve("topic");
  private static final Duration MAX_AWAY = Duration.ofHours(12); // Kafka keeps tombstones for 24 hours

  public static void main(String[] args) throws Exception {
    Properties config = new Properties();
    config.put("application.id", "table");
    config.put("bootstrap.servers", env("KAFKA_BROKERS", "localhost:9092"));
    config.put("state.dir", Files.createDirectories(STATE).toString());
    StreamsBuilder builder = new StreamsBuilder();
    builder.addGlobalStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray()),
        TOPIC, Consumed.with(Serdes.String(), Serdes.ByteArray()), Fill::new);
    try (Admin admin = Admin.create(config)) {
      while (true) {
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
          run(streams, admin);
        } catch (ExecutionException | StreamsException | IllegalStateException e) {
          System.out.println("waiting: " + e);
          Thread.sleep(1000);
        }
      }
    }
  }

  /** Runs until the topic is recreated or Kafka Streams fails. */
  private static void run(KafkaStreams streams, Admin admin) throws Exception {
    var topic = admin.describeTopics(List.of(TOPIC)).topicNameValues().get(TOPIC).get();
    String id = topic.topicId() + " with " + topic.partitions().size() + " partitions";
    boolean known = Files.exists(KNOWN) && Files.readString(KNOWN).equals(id);
    if (!known || Files.getLastModifiedTime(KNOWN).toInstant().isBefore(Instant.now().minus(MAX_AWAY))) {
      System.out.println("builds the table from " + id);
      streams.cleanUp();
      Files.writeString(KNOWN, id);
    }
    streams.start();
    for (String before = ""; ; Thread.sleep(500)) {
      if (!admin.describeTopics(List.of(TOPIC)).topicNameValues().get(TOPIC).get().topicId().equals(topic.topicId())) {
        throw new IllegalStateException("the topic was recreated");
      } else if (streams.state().hasCompletedShutdown()) {
        Files.delete(KNOWN); // the store may be ahead of the topic
        throw new IllegalStateException("Kafka Streams failed");
      } else if (streams.state() == KafkaStreams.State.RUNNING) { // the store has everything that was in the topic
        Files.setLastModifiedTime(KNOWN, FileTime.from(Instant.now()));
        String rows = rows(streams, topic.partitions().size());
        if (rows != null && !rows.equals(before)) {
          Path file = Path.of(env("TABLE", "table.txt")), next = Path.of(file + ".new");
          Files.move(Files.writeString(next, rows), file, StandardCopyOption.ATOMIC_MOVE);
          before = rows;
        }
      }
    }
  }

  /** Returns the rows of the clusters that are complete, or null if none is. */
  private static String rows(KafkaStreams streams, int partitions) throws Exception {
    ReadOnlyKeyValueStore<String, byte[]> store =
        streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
    Map<String, StringBuilder> rows = new TreeMap<>(); // by cluster
    Map<String, Integer> points = new HashMap<>(); // number of partitions with a point, by cluster
    try (KeyValueIterator<String, byte[]> all = store.all()) {
      while (all.hasNext()) {
        KeyValue<String, byte[]> row = all.next();
        if (row.key.startsWith(Fill.POINT)) {
          points.merge(row.key.split(" ")[1], 1, Integer::sum);
        } else {
          rows.computeIfAbsent(row.key.split("/")[0], cluster -> new StringBuilder()).append(new String(row.value));
        }
      }
    }
    points.values().removeIf(n -> n < partitions);
    rows.keySet().retainAll(points.keySet());
    return points.isEmpty() ? null : String.join("", rows.values());
  }

  static String env(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }
}
