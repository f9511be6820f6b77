// A table of one resource in an SQLite file, for nats-table.ts and kafka-table.ts. It needs
// Node.js 24, which has SQLite and reads TypeScript.
//
//	npm ci
//	export RESOURCE=deployments.apps TABLE=table.db
//	NATS_URL=localhost:4222 node nats-table.ts
//	KAFKA_BROKERS=localhost:9092 TOPIC=kuberelay node kafka-table.ts
//
//	sqlite3 table.db 'SELECT cluster, namespace, name, version FROM objects'
//	sqlite3 table.db 'SELECT cluster, complete, resolved FROM clusters'
//
// The table and the position on the bus change in one transaction, so the program can be killed at
// any time and continues where it stopped. It builds the table again if the stream or topic was
// recreated or lost its end, or if the bus may have dropped deletes in the meantime. Old rows stay
// until the new state is complete. "complete" is 1 for a cluster if its rows are a state that the
// cluster had, and "resolved" is the time of that state. If KUBERELAY_RESOLVED_INTERVAL is 0,
// "complete" can stay 0: see docs/subscribing.md. If "truncated" is 1, the object was too large for
// the bus, and the row has only apiVersion, kind, and metadata. The program skips messages that are
// not Kuberelay events.
// The file is in WAL mode, so a reader that stays open doesn't block the program.

import type { CloudEventV1 } from "cloudevents";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";

export const env = (name: string, otherwise: string): string => process.env[name] || otherwise;
export const [NAME, GROUP] = env("RESOURCE", "deployments.apps").split(/\.(.*)/);

// A message on the bus. A log is the stream or a partition. A tombstone has no event.
export interface Message {
  log: number;
  next: number; // the position after this one
  at: number; // milliseconds
  read: () => [key: string, event?: CloudEventV1<any>];
}

const MAX_AWAY = 12 * 3600 * 1000; // milliseconds; less than KUBERELAY_DELETE_RETENTION, by default 24 hours
const SCHEMA = `
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS objects (key PRIMARY KEY, cluster, namespace, name, uid, version, truncated, object, build);
CREATE TABLE IF NOT EXISTS clusters (cluster PRIMARY KEY, marked, complete, resolved);
CREATE TABLE IF NOT EXISTS positions (log PRIMARY KEY, position);
CREATE TABLE IF NOT EXISTS bus (one PRIMARY KEY, id, build, time);
INSERT OR IGNORE INTO bus VALUES (1, '', 0, 0)`;

export class Table {
  #db = new DatabaseSync(env("TABLE", "table.db"));
  #build = 0;

  constructor() {
    this.#db.exec(SCHEMA);
  }

  #update(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#db.prepare(sql).run(...values).changes);
  }

  #transaction<T>(change: () => T): T {
    this.#db.exec("BEGIN");
    try {
      const result = change();
      this.#db.exec("COMMIT");
      return result;
    } catch (error) {
      this.#db.exec("ROLLBACK");
      throw error;
    }
  }

  // Returns the positions at which to continue, or none to build the table again. The bounds of a log are
  // its first position and the one after its last message.
  open(bus: string, bounds: Map<number, [number, number]>): Map<number, number> {
    const stored = this.#db.prepare("SELECT log, position FROM positions").all();
    const positions = new Map(stored.map((row) => [Number(row.log), Number(row.position)]));
    const before = this.#db.prepare("SELECT id, build, time FROM bus").get()!;
    this.#build = Number(before.build);
    const valid = [...bounds].every(([log, [first, end]]) => {
      const position = positions.get(log) ?? -1;
      return first <= position && position <= end;
    });
    if (before.id === bus && Date.now() - Number(before.time) < MAX_AWAY && valid) {
      console.log("continues at", positions);
      return positions;
    }
    console.log("builds the table from", bus);
    this.#build++;
    this.#transaction(() => {
      this.#update("DELETE FROM positions");
      this.#update("UPDATE clusters SET marked = 0, complete = 0");
      this.#update("UPDATE bus SET id = ?, build = ?, time = ?", bus, this.#build, Date.now());
    });
    return new Map();
  }

  // Applies messages in order. Returns true if a message marks a cluster that is not complete yet. The
  // cluster is complete when the table has everything that is on the bus at this time.
  apply(batch: Message[]): boolean {
    return this.#transaction(() => {
      let marked = 0;
      for (const m of batch) {
        try {
          marked += this.#apply(...m.read());
        } catch (error: any) {
          if (error.code === "ERR_SQLITE_ERROR") throw error;
          console.log("skips a message before", m.next, error.message);
        }
        this.#update("INSERT OR REPLACE INTO positions VALUES (?, ?)", m.log, m.next);
        this.#update("UPDATE bus SET time = max(time, ?)", m.at);
      }
      return marked > 0;
    });
  }

  #apply(key: string, event?: CloudEventV1<any>): number {
    const of = key.split("/"); // for an object: cluster, group, resource, namespace, name
    const at = of[1] === "_control" ? 3 : 1;
    if (of[at] !== (GROUP || "core") || of[at + 1] !== NAME) return 0; // another resource
    switch (event?.type) {
      case "io.kuberelay.snapshot.completed":
      case "io.kuberelay.resource.resolved":
        this.#update("INSERT OR IGNORE INTO clusters VALUES (?, 0, 0, '')", of[0]);
        this.#update("UPDATE clusters SET resolved = ? WHERE cluster = ?", event.time!, of[0]);
        return this.#update("UPDATE clusters SET marked = 1 WHERE cluster = ? AND complete = 0", of[0]);
      case "io.kuberelay.object.created":
      case "io.kuberelay.object.updated":
      case "io.kuberelay.object.snapshot": {
        const data = typeof event.data === "string" ? JSON.parse(event.data) : event.data;
        const object = event.dataschema ? data.object : data; // KUBERELAY_DATA=change
        const { namespace = "", name, uid, resourceVersion } = object.metadata;
        if (![namespace, name, uid, resourceVersion].every((v) => typeof v === "string")) throw new Error("the metadata isn't text");
        const truncated = event.truncated === undefined ? 0 : 1;
        const row = [key, of[0], namespace, name, uid, resourceVersion, truncated, JSON.stringify(object), this.#build];
        this.#update("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", ...row);
        break;
      }
      case "io.kuberelay.object.deleted":
      case "io.kuberelay.object.deselected":
      case undefined:
        this.#update("DELETE FROM objects WHERE key = ?", key);
    }
    return 0;
  }

  // Marks clusters as complete, and removes their rows that the bus no longer has.
  caughtUp(): void {
    this.#transaction(() => {
      const complete = "SELECT cluster FROM clusters WHERE marked > complete";
      this.#update(`DELETE FROM objects WHERE build < ? AND cluster IN (${complete})`, this.#build);
      this.#update("UPDATE clusters SET complete = 1 WHERE marked > complete");
    });
  }

  // Makes the next call of open build the table again.
  forget(): void {
    this.#update("UPDATE bus SET id = ''");
  }
}
