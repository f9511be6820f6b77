import io.cloudevents.CloudEvent;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.KafkaMessageFactory;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/** Fills the store of StreamsTable from the topic, also when Kafka Streams restores it. */
class Fill extends ContextualProcessor<String, byte[], Void, Void> {
  static final String STORE = "objects", POINT = "point ";
  static final JsonFormat FORMAT = new JsonFormat();
  private static final String[] RESOURCE = StreamsTable.env("RESOURCE", "deployments.apps").split("\\.", 2);
  private static final String OF = "/" + (RESOURCE.length > 1 ? RESOURCE[1] : "core") + "/" + RESOURCE[0];

  @Override
  public void process(Record<String, byte[]> r) {
    KeyValueStore<String, byte[]> rows = context().getStateStore(STORE);
    boolean tombstone = r.value() == null && r.headers().lastHeader("ce_type") == null;
    CloudEvent event = tombstone ? null : KafkaMessageFactory.createReader(r.headers(), r.value()).toEvent();
    String cluster = r.key().split("/")[0], type = tombstone ? "tombstone" : event.getType();
    if (r.key().equals(cluster + "/_control/resolved" + OF)) {
      int partition = context().recordMetadata().orElseThrow().partition();
      rows.put(POINT + cluster + " " + partition, event.getTime().toString().getBytes());
    } else if (r.key().startsWith(cluster + OF + "/")) {
      switch (type) {
        case "io.kuberelay.object.created", "io.kuberelay.object.updated", "io.kuberelay.object.snapshot" ->
            rows.put(r.key(), FORMAT.serialize(event));
        case "io.kuberelay.object.deleted", "io.kuberelay.object.deselected", "tombstone" -> rows.delete(r.key());
      }
    }
  }
}
