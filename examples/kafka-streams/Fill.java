import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import io.cloudevents.kafka.KafkaMessageFactory;
import java.io.IOException;
import java.util.List;
import java.util.Set;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Fills the store of StreamsTable from the topic, including when Kafka Streams restores the store. It
 * skips records that are not Kuberelay events, because every writer with access to the topic can write
 * anything.
 */
class Fill extends ContextualProcessor<String, byte[], Void, Void> {
  static final String STORE = "objects", POINT = "point ";
  private static final String OBJECT = "io.kuberelay.object.";
  private static final Set<String> STATES = Set.of(OBJECT + "created", OBJECT + "updated", OBJECT + "snapshot");
  private static final Set<String> REMOVALS = Set.of(OBJECT + "deleted", OBJECT + "deselected", "tombstone");
  private static final String[] RESOURCE = StreamsTable.env("RESOURCE", "deployments.apps").split("\\.", 2);
  private static final String OF = "/" + (RESOURCE.length > 1 ? RESOURCE[1] : "core") + "/" + RESOURCE[0];

  @Override
  public void process(Record<String, byte[]> r) {
    CloudEvent event = null; // a tombstone has no event
    String cluster, type = "tombstone", row = null;
    boolean ours;
    try {
      cluster = r.key().split("/")[0];
      ours = r.key().startsWith(cluster + OF + "/");
      if (r.value() != null || r.headers().lastHeader("ce_type") != null) {
        event = KafkaMessageFactory.createReader(r.headers(), r.value()).toEvent();
        type = event.getType();
      }
      row = ours && STATES.contains(type) ? row(cluster, event) : null;
    } catch (IOException | RuntimeException e) {
      System.out.println("skips a record: " + e);
      return;
    }
    KeyValueStore<String, byte[]> rows = context().getStateStore(STORE);
    if (r.key().equals(cluster + "/_control/resolved" + OF)) {
      rows.put(POINT + cluster + " " + context().recordMetadata().orElseThrow().partition(), new byte[0]);
    } else if (row != null) {
      rows.put(r.key(), row.getBytes());
    } else if (ours && REMOVALS.contains(type)) {
      rows.delete(r.key());
    }
  }

  private static String row(String cluster, CloudEvent event) throws IOException {
    JsonNode data = new ObjectMapper().readTree(event.getData().toBytes());
    JsonNode meta = (event.getDataSchema() == null ? data : data.get("object")).get("metadata"); // KUBERELAY_DATA=change
    List<String> columns = List.of(cluster, meta.has("namespace") ? text(meta, "namespace") : "-", text(meta, "name"),
        text(meta, "uid"), text(meta, "resourceVersion"), "" + (event.getExtension("truncated") != null));
    return String.join("\t", columns) + "\n";
  }

  private static String text(JsonNode meta, String field) {
    if (!meta.path(field).isTextual()) throw new IllegalArgumentException(field + " isn't text");
    return meta.get(field).textValue();
  }
}
