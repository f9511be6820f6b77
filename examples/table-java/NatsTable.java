import io.cloudevents.CloudEvent;
import io.cloudevents.http.HttpMessageFactory;
import io.nats.client.Connection;
import io.nats.client.ErrorListener;
import io.nats.client.FetchConsumeOptions;
import io.nats.client.FetchConsumer;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamManagement;
import io.nats.client.JetStreamStatusCheckedException;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.api.AckPolicy;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.DeliverPolicy;
import io.nats.client.api.StreamInfo;
import io.nats.client.impl.NatsJetStreamMetaData;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Keeps a table of one resource that it reads from NATS. See Table.
 *
 * <p>The program waits for the server and the stream (STREAM, by default KUBERELAY). If the server
 * requires credentials, set NATS_TOKEN, or NATS_USER and NATS_PASSWORD.
 */
class NatsTable {
  private static final String STREAM = Table.env("STREAM", "KUBERELAY");
  private static final String SUBJECT = Table.GROUP.replace(".", "_") + "." + Table.NAME;

  public static void main(String[] args) throws Exception {
    Table table = new Table();
    String url = Table.env("NATS_URL", "nats://localhost:4222");
    if (url.contains("@")) { // exceptions of the client show the URL
      System.out.println("NATS_URL has credentials: set NATS_TOKEN, or NATS_USER and NATS_PASSWORD, instead");
      System.exit(2);
    }
    // The client must not reconnect: only a new connection checks whether the stream is the same.
    Options.Builder options = new Options.Builder().server(url).noReconnect().errorListener(new ErrorListener() {});
    if (!Table.env("NATS_TOKEN", "").isEmpty()) {
      options.token(Table.env("NATS_TOKEN", "").toCharArray());
    } else if (!Table.env("NATS_USER", "").isEmpty()) {
      options.userInfo(Table.env("NATS_USER", "").toCharArray(), Table.env("NATS_PASSWORD", "").toCharArray());
    }
    while (true) {
      try (Connection connection = Nats.connect(options.build())) {
        follow(table, connection);
      } catch (IOException e) { // its message shows the URL
        System.out.println("waiting: " + e.getClass().getSimpleName());
        Thread.sleep(1000);
      } catch (JetStreamApiException | JetStreamStatusCheckedException | IllegalStateException e) {
        System.out.println("waiting: " + e);
        Thread.sleep(1000);
      }
    }
  }

  private static void follow(Table table, Connection connection) throws Exception {
    JetStreamManagement streams = connection.jetStreamManagement();
    StreamInfo stream = streams.getStreamInfo(STREAM);
    long end = stream.getStreamState().getLastSequence() + 1;
    Long start = table.open(stream.getCreateTime().toString(), Map.of(0, new long[] {0, end})).get(0);
    ConsumerConfiguration.Builder config =
        ConsumerConfiguration.builder()
            .filterSubjects("kuberelay.*." + SUBJECT + ".>", "kuberelay.*._control.*." + SUBJECT)
            .ackPolicy(AckPolicy.None)
            .inactiveThreshold(Duration.ofMinutes(1));
    if (start == null) { // the last message of each subject is the current state of its object
      config.deliverPolicy(DeliverPolicy.LastPerSubject);
    } else {
      config.deliverPolicy(DeliverPolicy.ByStartSequence).startSequence(start);
    }
    String name = streams.createConsumer(STREAM, config.build()).getName();
    FetchConsumeOptions some = FetchConsumeOptions.builder().maxMessages(256).noWaitExpiresIn(2000).build();
    while (true) {
      List<BusMessage> batch = new ArrayList<>();
      long pending = 1;
      try (FetchConsumer messages = connection.getConsumerContext(STREAM, name).fetch(some)) {
        for (Message m = messages.nextMessage(); m != null; m = messages.nextMessage()) {
          NatsJetStreamMetaData at = m.metaData();
          Message read = m;
          batch.add(new BusMessage(0, at.streamSequence() + 1, at.timestamp().toInstant(), () -> entry(read)));
          pending = at.pendingCount();
        }
      }
      table.apply(batch);
      if (batch.isEmpty()) { // throws if the consumer is gone, for example because the stream was recreated
        pending = streams.getConsumerInfo(STREAM, name).getNumPending();
      }
      if (pending == 0) {
        table.caughtUp();
      }
    }
  }

  /** Reads a message. Its headers are those of the HTTP binding. The SDK does not percent-decode their values. */
  private static BusMessage.Entry entry(Message m) {
    Map<String, String> headers = new HashMap<>();
    m.getHeaders().forEach((name, values) -> {
      String value = values.get(0).replace("+", "%2B"); // URLDecoder decodes + as a space
      headers.put(name, URLDecoder.decode(value, StandardCharsets.UTF_8));
    });
    CloudEvent event = HttpMessageFactory.createReader(headers, m.getData()).toEvent();
    return new BusMessage.Entry((String) event.getExtension("partitionkey"), event);
  }
}
