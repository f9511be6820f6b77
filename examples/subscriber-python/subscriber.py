"""Reads the bus of Kuberelay with a plain NATS client. Prints a line for the current state
of every object, and then a line for each change as it happens.

    pip install nats-py
    NATS_URL=nats://localhost:4222 python subscriber.py

If the server requires a token, set NATS_TOKEN. The built-in server writes its token to a
file. If KUBERELAY_DATA_DIR and XDG_DATA_HOME are not set, the path of the file is:

    NATS_TOKEN=$(cat ~/.local/share/kuberelay/nats/token) python subscriber.py

The sidecar example needs no token.

SUBJECTS is a subject that selects events, such as kuberelay.*.apps.deployments.>. Such a
selection leaves out the claims of clusters, which tell the subscriber about a new stream. The
subjects of claims match kuberelay.*._control.>.
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
    if "@" in url:  # error messages can show the URL
        sys.exit("NATS_URL has credentials: set NATS_TOKEN instead")
    token = os.environ.get("NATS_TOKEN") or None
    connection = await nats.connect(url, token=token, max_reconnect_attempts=-1)
    # An ordered consumer keeps its position even if the connection is lost. "Last per
    # subject" starts with the last event of each object, which has its current state.
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
    """Prints a line if the stream was recreated, for example because the server lost its
    files. The claim of a cluster names the stream. The forwarder publishes all existing
    objects again, but no deletes for the objects that were deleted in the meantime."""
    if streams.get(source, stream) != stream:
        print("stream recreated", source, stream, flush=True)
    streams[source] = stream


if __name__ == "__main__":
    asyncio.run(main())
