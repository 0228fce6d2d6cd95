"""Kafka's error codes as errors that say what to do next."""

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    BadInput,
    GroupIsLive,
    GroupNotFound,
    HeadraceError,
    KafkaFailure,
    TopicExists,
    TopicNotFound,
    Unreachable,
)

_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_BAD_INPUT = {
    KafkaError.INVALID_REPLICATION_FACTOR: "use a replication factor up to the number of brokers",
    KafkaError.INVALID_PARTITIONS: "partitions can be added, never taken away",
    KafkaError.INVALID_CONFIG: "see `headrace topic describe` for the names and values",
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, dots, dashes and underscores",
    KafkaError.INVALID_REQUEST: "check the request against the broker's version",
    KafkaError.POLICY_VIOLATION: "the cluster's administrator forbids this",
}
_BY_CODE: dict[int, tuple[Callable[..., HeadraceError], str]] = {
    KafkaError.TOPIC_ALREADY_EXISTS: (TopicExists, "choose another name, or use `topic alter`"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (TopicNotFound, "see `headrace topic list`"),
    KafkaError._UNKNOWN_TOPIC: (TopicNotFound, "see `headrace topic list`"),
    KafkaError.GROUP_ID_NOT_FOUND: (GroupNotFound, "see `headrace group list`"),
    KafkaError.NON_EMPTY_GROUP: (GroupIsLive, "stop the group's members first"),
}


def translate(error: KafkaError | KafkaException | Exception, doing: str) -> HeadraceError:
    """The error to raise for what Kafka answered while `doing` something."""
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return KafkaFailure(f"{doing} failed: {error}", hint="run `headrace doctor`")
    code, text = error.code(), error.str()
    facts = {"code": error.name()}
    if code in _UNREACHABLE:
        return Unreachable(
            f"{doing} failed: no answer from the cluster ({text})",
            hint="is it running? `headrace status` and `headrace doctor` tell",
            **facts,
        )
    if code in _DENIED:
        return KafkaFailure(
            f"{doing} was refused: {text}", hint="ask for an ACL for this user", **facts
        )
    if code in _BAD_INPUT:
        return BadInput(f"{doing} was refused: {text}", hint=_BAD_INPUT[code], **facts)
    if code in _BY_CODE:
        kind, hint = _BY_CODE[code]
        return kind(f"{doing} failed: {text}", hint=hint, **facts)
    return KafkaFailure(
        f"{doing} failed: {text} ({error.name()})", hint="run `headrace doctor`", **facts
    )
