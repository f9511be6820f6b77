"""Keeps a table of one resource that it reads from NATS. See table.py.

The program waits for the server and the stream (STREAM, by default KUBERELAY). If the server
requires credentials, set NATS_TOKEN, or NATS_USER and NATS_PASSWORD.
"""

import asyncio
import os
import sys
import time

import nats
from cloudevents.core.bindings.http import HTTPMessage, from_http_event  # NATS has the same headers
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from table import GROUP, RESOURCE, Table, log

URL, STREAM = os.environ.get("NATS_URL", "nats://localhost:4222"), os.environ.get("STREAM", "KUBERELAY")
CREDENTIALS = {name: os.environ.get(f"NATS_{name.upper()}") or None for name in ("token", "user", "password")}
OF = f"{GROUP.replace('.', '_') or 'core'}.{RESOURCE}"  # in subjects


def read(m) -> tuple:
    event = from_http_event(HTTPMessage(m.headers, m.data))
    return event.get_extension("partitionkey"), event


async def follow(table: Table, connection) -> None:
    js = connection.jetstream()
    stream = await js.stream_info(STREAM)
    start = table.open(stream.created.isoformat(), {0: (0, stream.state.last_seq + 1)}).get(0)
    config = ConsumerConfig(
        filter_subjects=[f"kuberelay.*.{OF}.>", f"kuberelay.*._control.*.{OF}"],  # objects, markers and points
        # The last message of each subject is the current state of its object.
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE if start else DeliverPolicy.LAST_PER_SUBJECT,
        opt_start_seq=start,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=60,
    )
    name = (await js.add_consumer(STREAM, config)).name
    consumer = await js.pull_subscribe_bind(name, stream=STREAM)
    while True:
        try:
            messages = await consumer.fetch(256, timeout=2)
        except TimeoutError:
            messages = []
        if not messages:
            # This raises an error if the consumer is gone, for example because the stream was recreated.
            if (await js.consumer_info(STREAM, name)).num_pending == 0:
                table.caught_up()
            continue
        table.apply([(0, m.metadata.sequence.stream + 1, m.metadata.timestamp.timestamp(), m) for m in messages])
        if messages[-1].metadata.num_pending == 0:
            table.caught_up()


async def quiet(error: Exception) -> None:
    """Replaces the client's log, which shows a traceback for each attempt. The client also raises each error."""


async def connect(table: Table) -> None:
    # The client must not reconnect: only a new connection checks whether the stream is the same.
    settings = {"allow_reconnect": False, "max_reconnect_attempts": 1, "error_cb": quiet} | CREDENTIALS
    async with await nats.connect(URL, **settings) as connection:
        await follow(table, connection)


if __name__ == "__main__":
    if "@" in URL:  # error messages can show the URL
        sys.exit("NATS_URL has credentials: set NATS_TOKEN, or NATS_USER and NATS_PASSWORD, instead")
    local = Table(os.environ.get("TABLE", "table.db"), read)
    while True:
        try:
            asyncio.run(connect(local))
        except (OSError, RuntimeError, nats.errors.Error) as error:
            log("waiting:", repr(error))
            time.sleep(1)
