"""The cluster on this machine: jars, Java, brokers, registry, Connect."""

from headrace.local.cluster import LocalCluster, local_clusters, running_cluster
from headrace.local.processes import State
from headrace.local.status import BrokerStatus, ClusterStatus, ServerStatus

__all__ = [
    "BrokerStatus",
    "ClusterStatus",
    "LocalCluster",
    "ServerStatus",
    "State",
    "local_clusters",
    "running_cluster",
]
