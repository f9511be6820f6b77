"""A table of one resource in an SQLite file, for nats_table.py and kafka_table.py.

    pip install -r requirements.txt
    NATS_URL=nats://localhost:4222 RESOURCE=deployments.apps TABLE=table.db python nats_table.py
    KAFKA_BROKERS=localhost:9092 TOPIC=kuberelay RESOURCE=deployments.apps python kafka_table.py

    sqlite3 table.db 'SELECT cluster, namespace, name, version FROM objects'
    sqlite3 table.db 'SELECT cluster, complete, resolved FROM clusters'

The table and the position on the bus change in one transaction, so the program can be killed at
any time and continues where it stopped. It builds the table again if the stream or topic was
recreated or lost its end, or if the bus may have dropped deletes in the meantime. Old rows stay
until the new state is complete. "complete" is 1 for a cluster if its rows are a state that the
cluster had, and "resolved" is the time of that state. If KUBERELAY_RESOLVED_INTERVAL is 0,
"complete" can stay 0: see docs/subscribing.md. If "truncated" is 1, the object was too large for
the bus, and the row has only apiVersion, kind, and metadata. The program skips messages that are
not Kuberelay events, because every writer with access to the bus can write anything. The file is
in WAL mode, so a reader that stays open doesn't block the program.
"""

import json
import os
import sqlite3
import time

RESOURCE, _, GROUP = os.environ.get("RESOURCE", "deployments.apps").partition(".")
STATES = {f"io.kuberelay.object.{kind}" for kind in ("created", "updated", "snapshot")}
REMOVALS = {"io.kuberelay.object.deleted", "io.kuberelay.object.deselected"}
COMPLETE = {"io.kuberelay.snapshot.completed", "io.kuberelay.resource.resolved"}
MAX_AWAY = 12 * 3600  # seconds; less than KUBERELAY_DELETE_RETENTION, by default 24 hours
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS objects (key PRIMARY KEY, cluster, namespace, name, uid, version, truncated, object, build);
CREATE TABLE IF NOT EXISTS clusters (cluster PRIMARY KEY, marked, complete, resolved);
CREATE TABLE IF NOT EXISTS positions (log PRIMARY KEY, position);
CREATE TABLE IF NOT EXISTS bus (one PRIMARY KEY, id, build, time)"""


def log(*words) -> None:
    print(*words, flush=True)


class Table:
    def __init__(self, path: str, read) -> None:
        """read returns the key and the event of a message on the bus. The event of a tombstone is None."""
        self.read = read
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)

    def open(self, bus: str, bounds: dict[int, tuple[int, int]]) -> dict[int, int]:
        """Returns the positions at which to continue, or none to build the table again. A log is the
        stream or a partition. Its bounds are its first position and the one after its last message."""
        positions = dict(self.db.execute("SELECT log, position FROM positions"))
        before, self.build, at = self.db.execute("SELECT id, build, time FROM bus").fetchone() or ("", 0, 0)
        recent = before == bus and time.time() - at < MAX_AWAY
        if recent and all(bounds[n][0] <= p <= bounds[n][1] for n, p in positions.items()):
            log("continues at", positions)
            return positions
        self.build += 1
        log("builds the table from", bus)
        with self.db:
            self.db.execute("DELETE FROM positions")
            self.db.execute("UPDATE clusters SET marked = 0, complete = 0")
            self.db.execute("INSERT OR REPLACE INTO bus VALUES (1, ?, ?, ?)", (bus, self.build, time.time()))
        return {}

    def apply(self, batch: list) -> bool:
        """Applies messages in the order of the bus. Each has a log, the next position, its time, and
        the message. Returns True if a message marks a cluster that is not complete yet. The cluster is
        complete when the table has everything that is on the bus at this time."""
        marked = False
        with self.db:
            for of, position, at, m in batch:
                try:
                    marked |= self._apply(*self.read(m))
                except sqlite3.OperationalError:
                    raise
                except Exception as error:
                    log("skips a message before", position, repr(error))
                self.db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (of, position))
                self.db.execute("UPDATE bus SET time = max(time, ?)", (at,))
        return marked

    def _apply(self, key: str, event) -> bool:
        cluster, *of = key.split("/")
        kind = event.get_type() if event else None
        if of[0] == "_control" and of[2:] == [GROUP or "core", RESOURCE] and kind in COMPLETE:
            self.db.execute("INSERT OR IGNORE INTO clusters VALUES (?, 0, 0, '')", (cluster,))
            resolved = (event.get_time().isoformat(), cluster)
            self.db.execute("UPDATE clusters SET marked = 1, resolved = ? WHERE cluster = ?", resolved)
            return not self.db.execute("SELECT complete FROM clusters WHERE cluster = ?", (cluster,)).fetchone()[0]
        if of[:2] != [GROUP or "core", RESOURCE]:
            return False  # another resource, or a control record
        if event is None or kind in REMOVALS:  # None is a Kafka tombstone
            self.db.execute("DELETE FROM objects WHERE key = ?", (key,))
        elif kind in STATES:
            data = event.get_data()
            if event.get_attributes().get("dataschema"):  # KUBERELAY_DATA=change
                data = data["object"]
            meta, truncated = data["metadata"], event.get_extension("truncated") is not None
            columns = meta.get("namespace", ""), meta["name"], meta["uid"], meta["resourceVersion"]
            if not all(isinstance(column, str) for column in columns):
                raise ValueError("the metadata isn't text")
            row = (key, cluster, *columns, truncated, json.dumps(data), self.build)
            self.db.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return False

    def caught_up(self) -> None:
        """Marks clusters as complete, and removes their rows that the bus no longer has."""
        with self.db:
            for (cluster,) in self.db.execute("SELECT cluster FROM clusters WHERE marked > complete").fetchall():
                self.db.execute("DELETE FROM objects WHERE cluster = ? AND build < ?", (cluster, self.build))
                self.db.execute("UPDATE clusters SET complete = 1 WHERE cluster = ?", (cluster,))
                log("complete:", cluster)
