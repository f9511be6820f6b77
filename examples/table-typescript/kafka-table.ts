// Keeps a table of one resource that it reads from Kafka. See table.ts.
//
// The program waits for the brokers (KAFKA_BROKERS) and the topic (TOPIC, by default kuberelay). With
// a topic per resource, TOPIC is the topic of the resource, such as kuberelay.apps.deployments. GROUP
// is the consumer group, which KafkaJS requires. The program stores no offsets in it. KafkaJS doesn't
// report that a topic was recreated. The program notices a recreated topic only if the topic is missing
// for a moment or is shorter than before. If you recreate the topic while the program isn't running,
// remove the table.

import { Kafka as CloudEvents, type CloudEventV1 } from "cloudevents";
import kafkajs, { type KafkaMessage } from "kafkajs";
import { randomUUID } from "node:crypto";
import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { env, Table } from "./table.ts";

const TOPIC = env("TOPIC", "kuberelay");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async ({ buffer }: { buffer: Buffer }) => zstdCompressSync(buffer),
  decompress: async (buffer: Buffer) => zstdDecompressSync(buffer),
});
const kafka = new Kafka({ brokers: env("KAFKA_BROKERS", "localhost:9092").split(","), logLevel: logLevel.NOTHING });
const admin = kafka.admin();

// Returns the key and the event. A tombstone has no event. A consistency point has attributes, but no value.
function read(m: KafkaMessage): [string, CloudEventV1<any>?] {
  const key = m.key!.toString();
  const headers = Object.fromEntries(Object.entries(m.headers ?? {}).map(([name, value]) => [name, String(value)]));
  if (m.value === null && !headers.ce_type) return [key];
  const value = m.value?.toString() ?? "{}";
  return [key, CloudEvents.toEvent({ headers, key, value, body: value } as any) as CloudEventV1<any>];
}

// Returns the first position of each partition, and the position after its last record.
async function bounds(): Promise<Map<number, [number, number]>> {
  const offsets = await admin.fetchTopicOffsets(TOPIC);
  return new Map(offsets.map((p) => [p.partition, [Number(p.low), Number(p.high)]]));
}

async function follow(table: Table): Promise<void> {
  let target: Map<number, [number, number]> | undefined = await bounds();
  const start = table.open(`${TOPIC} with ${target.size} partitions`, target);
  const positions = new Map([...target].map(([n, [first]]) => [n, start.get(n) ?? first]));
  const consumer = kafka.consumer({ groupId: env("GROUP", `table-${randomUUID()}`), allowAutoTopicCreation: false });
  try {
    await consumer.connect();
    await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
    let marked = false;
    let crashed: Error | undefined;
    consumer.on(consumer.events.CRASH, ({ payload }) => void (crashed = payload.error));
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        const log = batch.partition;
        const records = batch.messages.filter((m) => Number(m.offset) >= positions.get(log)!);
        const messages = records.map((m) => {
          return { log, next: Number(m.offset) + 1, at: Number(m.timestamp), read: () => read(m) };
        });
        if (table.apply(messages)) marked = true;
        positions.set(log, Math.max(positions.get(log)!, Number(batch.lastOffset()) + 1));
      },
    });
    for (const [partition, offset] of positions) consumer.seek({ topic: TOPIC, partition, offset: String(offset) });
    for (;; await new Promise((resolve) => setTimeout(resolve, 500))) {
      if (crashed) throw crashed;
      const [before, due] = [new Map(positions), marked];
      marked = false;
      const now = await bounds();
      for (const [n, [first, end]] of now) {
        const position = before.get(n) ?? -1;
        if (position < first || position > end) throw new Error("the topic was recreated, or lost records");
      }
      if (due) target = now; // the table may still lack changes in other partitions
      if (target && [...target].every(([n, [, end]]) => positions.get(n)! >= end)) {
        table.caughtUp();
        target = undefined;
      }
    }
  } finally {
    await consumer.disconnect();
  }
}

const table = new Table();
for (;;) {
  try {
    await admin.connect();
    await follow(table);
  } catch (error: any) {
    if (error.type === "UNKNOWN_TOPIC_OR_PARTITION") table.forget(); // the next topic with this name is a new one
    console.log("waiting:", error.message);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
