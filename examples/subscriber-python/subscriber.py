"""Reads Kuberelay's bus with nothing but a NATS client: first the present state of
every object, and then each change as it happens. It prints a line for each.

    pip install nats-py
    NATS_URL=nats://localhost:4222 python subscriber.py

SUBJECTS may say which events, such as kuberelay.*.apps.deployments.>.
"""

import asyncio
import json
import os

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

OF_OBJECTS = "io.kuberelay.object."


async def main() -> None:
    connection = await nats.connect(
        os.environ.get("NATS_URL", "nats://localhost:4222"), max_reconnect_attempts=-1
    )
    # An ordered consumer keeps its place by itself. "Last per subject" begins with the
    # last event of each object: its present state.
    events = await connection.jetstream().subscribe(
        os.environ.get("SUBJECTS", "kuberelay.>"),
        stream=os.environ.get("STREAM", "KUBERELAY"),
        ordered_consumer=True,
        config=ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT),
    )
    async for event in events.messages:
        kind = event.headers["ce-type"]
        if not kind.startswith(OF_OBJECTS):
            continue  # a marker, such as that a first snapshot is complete
        kind = kind.removeprefix(OF_OBJECTS)
        if kind in ("deleted", "deselected"):
            print(kind, event.headers["ce-subject"], flush=True)
            continue
        labels = json.loads(event.data)["metadata"].get("labels", {})
        print(kind, event.headers["ce-subject"], event.headers["ce-resourceversion"], labels, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
