"""What holds for one call of the command line: the profile, and how errors are shown."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.clients import Admin, Connection
    from headrace.local import LocalCluster


@dataclass
class Session:
    """The options that stand before the command, and how it ended."""

    profile: str | None = None
    debug: bool = False
    terminated: bool = False  # by SIGTERM

    def connection(self) -> "Connection":
        """The cluster that is meant."""
        from headrace.clients import resolve

        return resolve(self.profile)

    def admin(self) -> "Admin":
        from headrace.clients import Admin

        return Admin(self.connection())

    def local_cluster(self) -> "LocalCluster | None":
        """The local cluster that the profile names, if it names one."""
        from headrace.local import local_clusters

        named = [cluster for cluster in local_clusters() if cluster.name == self.profile]
        return named[0] if named else None


session = Session()
