"""The settings of each server, as plain data. No I/O here."""

from collections.abc import Mapping
from pathlib import Path

from headrace.local.spec import BrokerSpec, ClusterSpec

HOST = "127.0.0.1"


def render(properties: Mapping[str, str | int]) -> str:
    """Java's .properties format; paths may hold backslashes, which it would eat."""
    return "".join(
        f"{name}={str(value).replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items()
    )


def broker_properties(spec: ClusterSpec, broker: BrokerSpec, data: Path) -> dict[str, str | int]:
    """server.properties of one broker."""
    copies = spec.replication
    in_sync = 2 if copies == 3 else 1
    return {
        **_roles(spec, broker),
        "log.dirs": str(data),
        # Three copies where there are three brokers; with one of them dead, work goes on.
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # A consumer that says in which rack it stands is served by the copy there.
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        # A topic is made on purpose: a typo in a name is an error, not a new topic.
        "auto.create.topics.enable": "false",
        # One machine, few clients: less waiting, fewer threads, smaller buffers.
        "group.initial.rebalance.delay.ms": 0,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4000,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "transaction.state.log.num.partitions": 10,
        "share.coordinator.state.topic.num.partitions": 5,
        # The cleaner takes its buffer from the heap at once: 128 MB if left alone.
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        # Retention is looked at every few seconds, so that a short one can be watched.
        "log.initial.task.delay.ms": 1000,
        "log.retention.check.interval.ms": 2000,
        "log.cleaner.backoff.ms": 2000,
    }


def _roles(spec: ClusterSpec, broker: BrokerSpec) -> dict[str, str | int]:
    voters = ",".join(
        f"{b.id}@{HOST}:{b.controller_port}" for b in spec.brokers if b.controller_port is not None
    )
    listeners = f"PLAINTEXT://{HOST}:{broker.port}"
    roles = "broker"
    if broker.controller_port is not None:
        listeners += f",CONTROLLER://{HOST}:{broker.controller_port}"
        roles = "broker,controller"
    return {
        "process.roles": roles,
        "node.id": broker.id,
        "broker.rack": f"rack-{broker.id}",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker.port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }


def connect_properties(spec: ClusterSpec, plugins: Path) -> dict[str, str | int]:
    """A Connect worker in distributed mode; its state lives in three topics of the cluster."""
    return {
        "bootstrap.servers": spec.bootstrap,
        "group.id": f"connect-{spec.name}",
        "listeners": f"http://{HOST}:{spec.connect_port}",
        "rest.advertised.host.name": HOST,
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "config.storage.topic": "connect-configs",
        "config.storage.replication.factor": spec.replication,
        "offset.storage.topic": "connect-offsets",
        "offset.storage.replication.factor": spec.replication,
        "offset.storage.partitions": 5,
        "status.storage.topic": "connect-status",
        "status.storage.replication.factor": spec.replication,
        "status.storage.partitions": 3,
        "offset.flush.interval.ms": 5000,
    }


def registry_options(spec: ClusterSpec, database: Path) -> list[str]:
    """Java options of the registry: an H2 file as its store, each commit flushed at once."""
    return [
        f"-Dquarkus.http.host={HOST}",
        f"-Dquarkus.http.port={spec.registry_port}",
        # Its second port, for health checks, would be 9000 for every registry: any will do.
        f"-Dquarkus.management.host={HOST}",
        "-Dquarkus.management.port=0",
        # What users of a Confluent registry expect: a change that breaks readers is refused.
        "-Dapicurio.rules.global.compatibility=BACKWARD",
        "-Dapicurio.storage.kind=sql",
        "-Dapicurio.storage.sql.kind=h2",
        f"-Dapicurio.datasource.url=jdbc:h2:file:{database};WRITE_DELAY=0",
        "-Dapicurio.datasource.jdbc.initial-size=2",
        "-Dapicurio.datasource.jdbc.min-size=2",
        "-Dapicurio.datasource.jdbc.max-size=10",
        "-Dquarkus.log.console.color=false",
    ]


def log_properties(log: Path) -> dict[str, str | int]:
    """log4j2.properties: one file, rolled at 10 MB, two old ones kept."""
    return {
        "status": "error",
        "appender.file.type": "RollingFile",
        "appender.file.name": "FILE",
        "appender.file.fileName": str(log),
        "appender.file.filePattern": f"{log}.%i",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{ISO8601} %-5p %m (%c{1})%n",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "10MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": 2,
        "rootLogger.level": "INFO",
        "rootLogger.appenderRef.file.ref": "FILE",
    }
