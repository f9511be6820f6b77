import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A table of one resource in an SQLite file, for NatsTable and KafkaTable.
 *
 * <pre>
 * mvn -q compile dependency:copy-dependencies
 * export RESOURCE=deployments.apps TABLE=table.db
 * NATS_URL=nats://localhost:4222 java -cp 'target/classes:target/dependency/*' NatsTable
 * KAFKA_BROKERS=localhost:9092 TOPIC=kuberelay java -cp 'target/classes:target/dependency/*' KafkaTable
 *
 * sqlite3 table.db 'SELECT cluster, namespace, name, version FROM objects'
 * sqlite3 table.db 'SELECT cluster, complete, resolved FROM clusters'
 * </pre>
 *
 * <p>The table and the position on the bus change in one transaction, so the program can be killed at
 * any time and continues where it stopped. It builds the table again if the stream or topic was
 * recreated or lost its end, or if the bus may have dropped deletes in the meantime. Old rows stay
 * until the new state is complete. "complete" is 1 for a cluster if its rows are a state that the
 * cluster had, and "resolved" is the time of that state. If KUBERELAY_RESOLVED_INTERVAL is 0,
 * "complete" can stay 0: see docs/subscribing.md. If "truncated" is 1, the object was too large for
 * the bus, and the row has only apiVersion, kind, and metadata. The program skips messages that are
 * not Kuberelay events.
 * The file is in WAL mode, so a reader that stays open doesn't block the program.
 */
class Table {
  private static final String RESOURCE = env("RESOURCE", "deployments.apps");
  static final String NAME = RESOURCE.split("\\.", 2)[0];
  static final String GROUP = RESOURCE.contains(".") ? RESOURCE.split("\\.", 2)[1] : "core";
  private static final long MAX_AWAY = 12 * 3600; // seconds; less than KUBERELAY_DELETE_RETENTION, by default 24 hours
  private static final String SCHEMA = """
      CREATE TABLE IF NOT EXISTS objects (key PRIMARY KEY, cluster, namespace, name, uid, version, truncated, object, build);
      CREATE TABLE IF NOT EXISTS clusters (cluster PRIMARY KEY, marked, complete, resolved);
      CREATE TABLE IF NOT EXISTS positions (log PRIMARY KEY, position);
      CREATE TABLE IF NOT EXISTS bus (one PRIMARY KEY, id, build, time);
      INSERT OR IGNORE INTO bus VALUES (1, '', 0, 0)
      """;

  private final ObjectMapper json = new ObjectMapper();
  private final Connection db = DriverManager.getConnection("jdbc:sqlite:" + env("TABLE", "table.db") + "?journal_mode=WAL");
  private long build;

  Table() throws SQLException {
    db.createStatement().executeUpdate(SCHEMA);
    db.setAutoCommit(false);
  }

  static String env(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }

  /**
   * Returns the positions at which to continue, or none to build the table again. The bounds of a log
   * are its first position and the one after its last message.
   */
  Map<Integer, Long> open(String bus, Map<Integer, long[]> bounds) throws SQLException {
    db.rollback(); // after an error
    Map<Integer, Long> positions = new HashMap<>();
    ResultSet stored = db.createStatement().executeQuery("SELECT log, position FROM positions");
    while (stored.next()) {
      positions.put(stored.getInt(1), stored.getLong(2));
    }
    stored.close();
    ResultSet row = db.createStatement().executeQuery("SELECT build, id, time FROM bus");
    build = row.getLong(1);
    boolean recent = row.getString(2).equals(bus) && Instant.now().getEpochSecond() - row.getLong(3) < MAX_AWAY;
    row.close();
    for (Map.Entry<Integer, long[]> log : bounds.entrySet()) {
      long position = positions.getOrDefault(log.getKey(), -1L);
      recent &= log.getValue()[0] <= position && position <= log.getValue()[1];
    }
    if (recent) {
      System.out.println("continues at " + positions);
      return positions;
    }
    System.out.println("builds the table from " + bus);
    build++;
    update("DELETE FROM positions");
    update("UPDATE clusters SET marked = 0, complete = 0");
    update("UPDATE bus SET id = ?, build = ?, time = ?", bus, build, Instant.now().getEpochSecond());
    db.commit();
    return Map.of();
  }

  /**
   * Applies messages in order. Returns true if a message marks a cluster that is not complete yet. The
   * cluster is complete when the table has everything that is on the bus at this time.
   */
  boolean apply(List<BusMessage> batch) throws Exception {
    int marked = 0;
    for (BusMessage m : batch) {
      try {
        BusMessage.Entry entry = m.entry().call();
        marked += apply(entry.key(), entry.event());
      } catch (Exception e) {
        if (e instanceof SQLException) throw e;
        System.out.println("skips a message before " + m.next() + ": " + e);
      }
      update("INSERT OR REPLACE INTO positions VALUES (?, ?)", m.log(), m.next());
      update("UPDATE bus SET time = max(time, ?)", m.time().getEpochSecond());
    }
    db.commit();
    return marked > 0;
  }

  private int apply(String key, CloudEvent event) throws Exception {
    String[] of = key.split("/"); // for an object: cluster, group, resource, namespace, name
    int at = of[1].equals("_control") ? 3 : 1;
    if (!of[at].equals(GROUP) || !of[at + 1].equals(NAME)) return 0; // another resource
    switch (event == null ? "tombstone" : event.getType()) {
      case "io.kuberelay.snapshot.completed", "io.kuberelay.resource.resolved" -> {
        update("INSERT OR IGNORE INTO clusters VALUES (?, 0, 0, '')", of[0]);
        update("UPDATE clusters SET marked = 1, resolved = ? WHERE cluster = ?", event.getTime().toString(), of[0]);
        return update("UPDATE clusters SET marked = 1 WHERE cluster = ? AND complete = 0", of[0]);
      }
      case "io.kuberelay.object.deleted", "io.kuberelay.object.deselected", "tombstone" ->
          update("DELETE FROM objects WHERE key = ?", key);
      case "io.kuberelay.object.created", "io.kuberelay.object.updated", "io.kuberelay.object.snapshot" -> {
        JsonNode data = json.readTree(event.getData().toBytes());
        JsonNode object = event.getDataSchema() == null ? data : data.get("object"); // KUBERELAY_DATA=change
        JsonNode meta = object.get("metadata");
        Object[] row = {
          key, of[0], meta.has("namespace") ? text(meta, "namespace") : "", text(meta, "name"), text(meta, "uid"),
          text(meta, "resourceVersion"), event.getExtension("truncated") != null, object.toString(), build
        };
        update("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row);
      }
    }
    return 0;
  }

  private static String text(JsonNode meta, String field) {
    if (!meta.path(field).isTextual()) throw new IllegalArgumentException(field + " isn't text");
    return meta.get(field).textValue();
  }

  /** Marks clusters as complete, and removes their rows that the bus no longer has. */
  void caughtUp() throws SQLException {
    update("DELETE FROM objects WHERE build < ? AND cluster IN (SELECT cluster FROM clusters WHERE marked > complete)", build);
    update("UPDATE clusters SET complete = 1 WHERE marked > complete");
    db.commit();
  }

  private int update(String sql, Object... values) throws SQLException {
    try (PreparedStatement statement = db.prepareStatement(sql)) {
      for (int n = 0; n < values.length; n++) {
        statement.setObject(n + 1, values[n]);
      }
      return statement.executeUpdate();
    }
  }
}
