// Keeps a table of one resource that it reads from NATS. See table.ts.
//
// The program waits for the server and the stream (STREAM, by default KUBERELAY). If the server
// requires credentials, set NATS_TOKEN, or NATS_USER and NATS_PASSWORD.

import { AckPolicy, DeliverPolicy, jetstream, type JsMsg } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { HTTP, type CloudEventV1 } from "cloudevents";
import { env, GROUP, NAME, Table, type Message } from "./table.ts";

const STREAM = env("STREAM", "KUBERELAY");
const OF = `${(GROUP || "core").replaceAll(".", "_")}.${NAME}`; // in subjects

// Reads a message. Its headers are those of the HTTP binding. The SDK does not percent-decode their values.
function read(m: JsMsg): [string, CloudEventV1<any>] {
  const headers: Record<string, string> = {};
  for (const [name, values] of m.headers!) headers[name] = decodeURIComponent(values[0]);
  const event = HTTP.toEvent({ headers, body: m.string() }) as CloudEventV1<any>;
  return [event.partitionkey as string, event];
}

async function follow(table: Table, connection: NatsConnection): Promise<void> {
  const js = jetstream(connection);
  const manager = await js.jetstreamManager();
  const { created, state } = await manager.streams.info(STREAM);
  const start = table.open(created, new Map([[0, [0, state.last_seq + 1]]])).get(0);
  const { name } = await manager.consumers.add(STREAM, {
    filter_subjects: [`kuberelay.*.${OF}.>`, `kuberelay.*._control.*.${OF}`], // objects, markers and points
    // The last message of each subject is the current state of its object.
    deliver_policy: start ? DeliverPolicy.StartSequence : DeliverPolicy.LastPerSubject,
    opt_start_seq: start,
    ack_policy: AckPolicy.None,
    inactive_threshold: 60e9, // nanoseconds
  });
  const consumer = await js.consumers.get(STREAM, name);
  for (;;) {
    const batch: Message[] = [];
    let pending = 1;
    for await (const m of await consumer.fetch({ max_messages: 256, expires: 1000 })) {
      batch.push({ log: 0, next: m.seq + 1, at: Date.parse(m.timestamp), read: () => read(m) });
      pending = m.info.pending;
    }
    table.apply(batch);
    // This throws an error if the consumer is gone, for example because the stream was recreated.
    if (batch.length === 0) pending = (await consumer.info()).num_pending;
    if (pending === 0) table.caughtUp();
  }
}

const servers = env("NATS_URL", "localhost:4222");
const { NATS_TOKEN: token, NATS_USER: user, NATS_PASSWORD: pass } = process.env;
if (servers.includes("@")) { // error messages can show the URL
  console.log("NATS_URL has credentials: set NATS_TOKEN, or NATS_USER and NATS_PASSWORD, instead");
  process.exit(2);
}
const table = new Table();
for (;;) {
  try {
    // The client must not reconnect: only a new connection checks whether the stream is the same.
    const connection = await connect({ servers, token, user, pass, reconnect: false });
    await follow(table, connection).finally(() => connection.close());
  } catch (error: any) {
    console.log("waiting:", error.message);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
