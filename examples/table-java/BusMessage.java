import io.cloudevents.CloudEvent;
import java.time.Instant;
import java.util.concurrent.Callable;

/** A message on the bus, and how to read it. A log is the stream or a partition. */
record BusMessage(int log, long next, Instant time, Callable<Entry> entry) {
  /** What a message says about a key. The event of a tombstone is null. */
  record Entry(String key, CloudEvent event) {}
}
