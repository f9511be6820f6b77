"""Keeps a table of one resource that it reads from Kafka. See table.py.

The program waits for the brokers (KAFKA_BROKERS) and the topic (TOPIC, by default kuberelay). With
a topic per resource, TOPIC is the topic of the resource, such as kuberelay.apps.deployments.
"""

import os
import time

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from table import Table, log

BROKERS, TOPIC = os.environ.get("KAFKA_BROKERS", "localhost:9092"), os.environ.get("TOPIC", "kuberelay")


def describe(admin: AdminClient) -> tuple[str, list[int]]:
    """Returns what identifies the topic, and its partitions."""
    topic = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result()
    return f"{topic.topic_id} with {len(topic.partitions)} partitions", [p.id for p in topic.partitions]


def bounds(consumer: Consumer, partitions: list[int]) -> dict[int, tuple[int, int]]:
    return {n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=10) for n in partitions}


def read(m) -> tuple:
    headers = dict(m.headers() or [])
    if m.value() is None and "ce_type" not in headers:  # a consistency point has attributes, but no value
        return m.key().decode(), None
    return m.key().decode(), from_kafka_event(KafkaMessage(headers, m.key(), m.value() or b""))


def follow(table: Table, admin: AdminClient, consumer: Consumer) -> None:
    topic, partitions = describe(admin)
    target = bounds(consumer, partitions)
    positions = {n: start for n, (start, _) in target.items()} | table.open(topic, target)
    consumer.assign([TopicPartition(TOPIC, n, offset) for n, offset in positions.items()])
    while True:
        batch = []
        for m in consumer.consume(500, timeout=1):
            if m.error():
                raise KafkaException(m.error())
            batch.append((m.partition(), m.offset() + 1, m.timestamp()[1] / 1000, m))
            positions[m.partition()] = m.offset() + 1
        if not batch and describe(admin)[0] != topic:
            raise RuntimeError("the topic was recreated")
        if batch and table.apply(batch):
            target = bounds(consumer, partitions)  # the table may still lack changes in other partitions
        if target and all(positions[n] >= end for n, (_, end) in target.items()):
            table.caught_up()
            target = {}


if __name__ == "__main__":
    local, servers = Table(os.environ.get("TABLE", "table.db"), read), {"bootstrap.servers": BROKERS}
    while True:
        # The consumer needs no group, because the table stores the positions.
        settings = servers | {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer(settings)
        try:
            follow(local, AdminClient(servers), consumer)
        except (RuntimeError, KafkaException) as error:
            log("waiting:", error)
            time.sleep(1)
        finally:
            consumer.close()
