"""Everything Headrace raises on purpose, in one tree.

    HeadraceError                 base: says what happened and what to do next
    ├── BadInput                  the request cannot be right as it stands        (exit status 2)
    │   ├── ConfigError           a setting, profile or environment variable is wrong
    │   ├── TopicExists           a topic of that name is already there
    │   ├── TopicNotFound         no topic of that name
    │   ├── GroupNotFound         no group of that name
    │   ├── UnknownBroker         the local cluster has no broker with that id
    │   └── PieceChanged          a piece has other rows than when a part of it was sent
    └── OperationFailed           the request was fine, carrying it out was not   (exit status 1)
        ├── ArtifactError         a jar or archive could not be fetched, verified or stored
        │   ├── ChecksumMismatch  the bytes are not the ones the lock file names
        │   └── NoRoom            the disk has not enough free space
        ├── ClusterError          the cluster on this machine
        │   ├── PortInUse         somebody else listens on a port the cluster needs
        │   ├── ServerDied        a server ended, or never began to serve
        │   ├── ForeignData       the data folder is of another version or damaged
        │   └── NoCluster         there is no such cluster, or it is not running
        ├── KafkaFailure          a broker refused, or could not be reached
        │   ├── Unreachable       no broker answered in time
        │   ├── GroupIsLive       the group has members, its offsets cannot be moved
        │   ├── DeliveryFailed    a record was not written
        │   ├── BufferFull        records wait to be sent, and no more fit
        │   ├── ForeignMetadata   a committed offset has metadata that are not ours, or damaged
        │   └── NoPosition        a group has no offset to begin at, and must not choose one
        ├── HandlerFailed         a record's handler raised, and the consumer was to stop then
        ├── SerdeError            bytes and objects that do not become each other
        │   ├── EncodeFailed      a value has no bytes in this serde
        │   └── DecodeFailed      bytes are not what this serde writes
        └── RegistryError         the schema registry refused, or could not be reached
            ├── RegistryUnreachable  no answer in time; the next call tries again
            ├── SchemaNotFound    no such subject, version or schema id
            └── IncompatibleSchema   the change would break readers or writers

Each error carries its facts as attributes (`error.facts`) and the next step as `error.hint`;
the command line prints them as `error: ...` and `hint: ...`.
"""

from typing import Any, ClassVar


class HeadraceError(Exception):
    """Base of all errors raised on purpose. `str(error)` is one line; `hint` is the next step."""

    exit_status: ClassVar[int] = 1
    retryable: ClassVar[bool] = False  # whether the same call may succeed a little later

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts


class BadInput(HeadraceError):
    """The request cannot be right as it stands; nothing was done."""

    exit_status = 2


class ConfigError(BadInput):
    """A setting, profile or environment variable is wrong."""


class TopicExists(BadInput):
    """A topic of that name is already there."""


class TopicNotFound(BadInput):
    """No topic of that name."""


class GroupNotFound(BadInput):
    """No group of that name."""


class UnknownBroker(BadInput):
    """The local cluster has no broker with that id."""


class PieceChanged(BadInput):
    """A piece of a Spark job has other rows than when it, or a part of it, was sent."""


class OperationFailed(HeadraceError):
    """The request was fine, carrying it out was not."""


class ArtifactError(OperationFailed):
    """A jar or archive could not be fetched, verified or stored."""


class ChecksumMismatch(ArtifactError):
    """The bytes are not the ones the lock file names."""


class NoRoom(ArtifactError):
    """The disk has not enough free space."""


class ClusterError(OperationFailed):
    """The cluster on this machine is not in the state it should be in."""


class PortInUse(ClusterError):
    """Somebody else listens on a port the cluster needs."""


class ServerDied(ClusterError):
    """A server ended, or never began to serve."""


class ForeignData(ClusterError):
    """The data folder is of another version, or damaged."""


class NoCluster(ClusterError):
    """There is no such cluster, or it is not running."""


class KafkaFailure(OperationFailed):
    """A broker refused, or could not be reached."""


class Unreachable(KafkaFailure):
    """No broker answered in time."""

    retryable = True


class GroupIsLive(KafkaFailure):
    """The group has members, so its offsets cannot be moved."""


class DeliveryFailed(KafkaFailure):
    """A record was not written; `error.facts["record"]` is the record, back in your hands."""


class BufferFull(KafkaFailure):
    """Records wait to be sent, and no more fit; the record that did not is still yours."""


class ForeignMetadata(KafkaFailure):
    """A committed offset has metadata that Headrace did not write, or that are damaged.

    The offset itself is good: going on from it repeats records, and skips none.
    """


class NoPosition(KafkaFailure):
    """A group has no offset to begin at, and must not choose one."""


class HandlerFailed(OperationFailed):
    """A record's handler raised, and the consumer was to stop then. The record is not committed."""


class SerdeError(OperationFailed):
    """Bytes and objects that do not become each other; the facts say where they belong."""


class EncodeFailed(SerdeError):
    """A value has no bytes in this serde; facts: topic, part."""


class DecodeFailed(SerdeError):
    """Bytes are not what this serde writes.

    Facts: topic, part, partition, offset, and the first bytes as hexadecimal digits.
    """


class RegistryError(OperationFailed):
    """The schema registry refused, or could not be reached."""


class RegistryUnreachable(RegistryError):
    """The registry did not answer in time. The next call asks it again."""

    retryable = True


class SchemaNotFound(RegistryError):
    """No such subject, version or schema id."""


class IncompatibleSchema(RegistryError):
    """The change would break readers or writers; `facts["reasons"]` are the registry's."""
