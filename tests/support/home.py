"""A Headrace home of a test's own, and the clusters in it."""

import json
from pathlib import Path
from typing import Any

from support.cli import Cli
from support.processes import kill, servers_under


class Home(Cli):
    """Calls `headrace` with a HEADRACE_HOME of its own; `close` ends every server in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        super().__init__(folder, {"HEADRACE_HOME": str(self.path)})

    def cluster(self, name: str = "default") -> Path:
        """The folder of a cluster."""
        return self.path / "clusters" / name

    def servers(self, name: str | None = None) -> list[int]:
        """Pids of the servers that run here, as the operating system tells."""
        folder = self.path if name is None else self.cluster(name)
        return sorted(process.pid for process in servers_under(folder))

    def edit(self, name: str, **changes: Any) -> None:
        """Change what stands in a cluster's cluster.json."""
        path = self.cluster(name) / "cluster.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def pull_the_plug(self, name: str | None = None) -> None:
        """SIGKILL for every server: what a power cut leaves behind."""
        kill(servers_under(self.path if name is None else self.cluster(name)))

    def close(self) -> None:
        self.pull_the_plug()
