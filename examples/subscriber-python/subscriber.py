"""Reads the bus of Kuberelay with a plain NATS client: first the current state of every
object, and then each change as it happens. Prints a line for each.

    pip install nats-py
    NATS_URL=nats://localhost:4222 python subscriber.py

NATS_TOKEN is the token of a server that wants one. The built-in server writes its token to a
file; this is its path if KUBERELAY_DATA_DIR and XDG_DATA_HOME are not set:

    NATS_TOKEN=$(cat ~/.local/share/kuberelay/nats/token) python subscriber.py

In the sidecar example, no token is needed.

SUBJECTS selects events, such as kuberelay.*.apps.deployments.>. A selection like this
leaves out the marker that tells the subscriber about a new stream;
kuberelay.*._control.> has it.
"""

import asyncio
import json
import os
import sys

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

OF_OBJECTS = "io.kuberelay.object."
CLAIMED = "io.kuberelay.cluster.claimed"


async def main() -> None:
    url = os.environ.get("NATS_URL", "nats://localhost:4222")
    if "@" in url:  # errors can have the URL
        sys.exit("NATS_URL has credentials: set NATS_TOKEN instead")
    token = os.environ.get("NATS_TOKEN") or None
    connection = await nats.connect(url, token=token, max_reconnect_attempts=-1)
    # An ordered consumer keeps its position. "Last per subject" starts with the last event
    # of each object: its current state.
    events = await connection.jetstream().subscribe(
        os.environ.get("SUBJECTS", "kuberelay.>"),
        stream=os.environ.get("STREAM", "KUBERELAY"),
        ordered_consumer=True,
        config=ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT),
    )
    streams: dict[str, str] = {}
    async for event in events.messages:
        kind = event.headers["ce-type"]
        if kind == CLAIMED:
            notice(streams, event.headers["ce-source"], json.loads(event.data).get("stream", ""))
        if not kind.startswith(OF_OBJECTS):
            continue  # a marker, such as the end of a first snapshot
        kind = kind.removeprefix(OF_OBJECTS)
        if kind in ("deleted", "deselected"):
            print(kind, event.headers["ce-subject"], flush=True)
            continue
        labels = json.loads(event.data)["metadata"].get("labels", {})
        print(kind, event.headers["ce-subject"], event.headers["ce-resourceversion"], labels, flush=True)


def notice(streams: dict[str, str], source: str, stream: str) -> None:
    """Prints a line if the stream is a new one, for example because the server lost its
    files. The claim of a cluster names the stream. Objects of the old stream that still
    exist are published again. Objects that were deleted in the meantime are not."""
    if streams.get(source, stream) != stream:
        print("another stream", source, stream, flush=True)
    streams[source] = stream


if __name__ == "__main__":
    asyncio.run(main())
