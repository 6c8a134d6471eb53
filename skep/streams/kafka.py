"""Records into a topic of Kafka, with the official client in a thread of its own.

The producer is idempotent and waits for all replicas; `write` returns when every message
was acknowledged. At least once: after a failure the producer is made anew, and a message
of the failed batch may be there twice, with the same `position` header.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from skep.errors import ConfigurationError, InvalidInput, SkepError, Unavailable
from skep.streams.blocking_thread import OneThread
from skep.streams.driver_options import host_list
from skep.streams.host_rules import JobLimits
from skep.streams.json_records import as_json, field_of, key_text, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import KafkaOptions
from skep.streams.sink_url import SinkUrl

#: What a message costs beyond its key and value, generously.
OVERHEAD = 200
POLL_SECONDS = 0.1
#: For the first answer of a broker; the caller tries again.
OPEN_SECONDS = 5.0
PORT = 9092
HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
BAD_MESSAGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}


class Outgoing(NamedTuple):
    """A message as it is sent."""

    position: int
    key: bytes | None
    value: bytes


def producer_settings(place: SinkUrl, options: KafkaOptions) -> dict[str, Any]:
    """The settings of the client; the password is among them."""
    user, password = place.login
    settings: dict[str, Any] = {
        "bootstrap.servers": place.hosts,
        "client.id": "skep",
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": options.compression,
        "delivery.timeout.ms": int(options.timeout * 1000),
        "message.max.bytes": options.max_bytes,
        "linger.ms": 5,
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 10_000,
        "security.protocol": f"{'SASL_' if user else ''}{'SSL' if options.tls else 'PLAINTEXT'}",
    }
    login = {
        "sasl.mechanism": options.mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    return settings | (login if user else {})


class KafkaSink:
    """One topic."""

    def __init__(
        self, place: SinkUrl, options: KafkaOptions, limits: JobLimits | None = None
    ) -> None:
        self._place, self._options, self._limits = place, options, limits
        self._hosts = host_list(place.hosts, PORT) if limits is not None else []
        self._topic = place.path.strip("/")
        if not self._topic or "/" in self._topic:
            raise ConfigurationError("kafka sink: write kafka://BROKER,BROKER/TOPIC.")
        self._thread = OneThread("sink-kafka")
        self._producer: Producer | None = None

    async def open(self) -> int:
        await self._thread.run(self._connect)
        return 0

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        messages, refused = sort_out(records, self._message)
        if not refused and messages:
            await self._thread.run(self._send, messages)
        return refused

    async def close(self) -> None:
        await self._thread.run(self._drop)
        await self._thread.close()

    def describe(self) -> str:
        return self._place.shown

    def _message(self, record: Record) -> Outgoing:
        value, key = as_json(record.data), None
        if self._options.key:
            key = key_text(field_of(record, self._options.key)).encode()
        size = len(value) + len(key or b"") + OVERHEAD
        if size > self._options.max_bytes:
            raise InvalidInput(f"it has {size} bytes, more than max_bytes of this sink")
        return Outgoing(record.position, key, value)

    # -- in the thread

    def _connect(self) -> None:
        self._check(self._hosts)
        try:
            found = self._live().list_topics(
                self._topic, timeout=min(self._options.timeout, OPEN_SECONDS)
            )
            brokers = [(each.host, each.port) for each in found.brokers.values()]
            self._check(set(brokers) - set(self._hosts), written=False)
        except KafkaException as error:
            self._drop()
            raise self._explain(error.args[0]) from error
        except SkepError:
            self._drop()
            raise

    def _check(self, hosts: Iterable[tuple[str, int]], *, written: bool = True) -> None:
        """librdkafka resolves and connects by itself: its brokers are judged before use."""
        if self._limits is not None:
            for host, port in hosts:
                self._limits.hosts.addresses(host, port, written=written)

    def _live(self) -> Producer:
        if self._producer is None:
            try:
                self._producer = Producer(
                    producer_settings(self._place, self._options), logger=_quiet()
                )
            except (KafkaException, ValueError) as error:
                raise ConfigurationError(f"kafka sink: {error}") from error
        return self._producer

    def _send(self, messages: list[Outgoing]) -> None:
        failures: list[KafkaError] = []
        try:
            self._deliver(messages, failures)
        except KafkaException as error:
            failures.append(error.args[0])
        if failures:
            self._drop()
            raise self._explain(failures[0])

    def _deliver(self, messages: list[Outgoing], failures: list[KafkaError]) -> None:
        """Hand over all and wait for all; what went wrong is added to `failures`."""
        if self._producer is None:  # dropped after a failure: its brokers are judged anew
            self._connect()
        producer = self._live()

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for message in messages:
            self._hand_over(producer, message, told)
        # The client's own timeout ends every message; the rest is for the last callbacks.
        if producer.flush(self._options.timeout + 5):
            failures.append(KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001 - its public name

    def _hand_over(self, producer: Producer, message: Outgoing, told: Any) -> None:
        while True:
            try:
                producer.produce(
                    self._topic,
                    message.value,
                    message.key,
                    on_delivery=told,
                    headers={"position": str(message.position).encode()},
                )
            except BufferError:  # its queue is full: let it send
                producer.poll(POLL_SECONDS)
            else:
                producer.poll(0)
                return

    def _drop(self) -> None:
        """What is still under way is given up: the caller writes the whole batch again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1)

    def _explain(self, error: KafkaError) -> SkepError:
        said = f"{self._place.shown}: {error.name() if self._limits else error.str()}"
        if error.code() in BAD_MESSAGE:
            return InvalidInput(said)
        return ConfigurationError(said) if error.code() in HOPELESS else Unavailable(said)


def _quiet() -> Any:
    """The client's own lines about brokers that come and go, hundreds in a second, are not
    shown: what fails is raised, and the caller logs it."""
    import logging

    logger = logging.getLogger(f"{__name__}.client")
    logger.setLevel(logging.CRITICAL)
    return logger
