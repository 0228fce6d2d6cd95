"""A standalone Spark cluster for tests: a master and workers, each a process of its own."""

import json
import os
import subprocess
import urllib.request
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from headrace.config import Places
from headrace.errors import ConfigError, ServerDied
from headrace.local.java import spark_java
from headrace.local.ports import choose_free
from headrace.model import Deadline

HOST = "127.0.0.1"
SECONDS_TO_START = 90.0
SECONDS_TO_STOP = 10.0
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# No proxy: this never leaves the machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class SparkCluster:
    """Runs as long as its `with` block; everything it writes is in `folder`.

    >>> with SparkCluster(tmp_path) as cluster:            # doctest: +SKIP
    ...     spark = session(master=cluster.master)
    """

    def __init__(
        self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g"
    ) -> None:
        self.folder = folder
        self._count, self._cores, self._memory = workers, cores, memory
        self._port, self._page = choose_free(2, ())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """What a Spark session wants to hear."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start_master()
            for number in range(self._count):
                self._start_worker(number)
            self._wait_for(self._count, "its workers")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def executors(self) -> list[psutil.Process]:
        """The processes in which applications have their tasks run now."""
        found = []
        for process in self._processes.values():
            found += [each for each in _descendants(process.pid) if _runs(each, EXECUTOR)]
        return found

    def close(self) -> None:
        """End all processes, with those that they started."""
        own = list(self._processes.values())
        below = [each for process in own for each in _descendants(process.pid)]
        for process in own:
            process.terminate()
        _, alive = psutil.wait_procs(below, SECONDS_TO_STOP)
        for each in alive:
            each.kill()
        for process in own:
            _end(process)
        self._processes.clear()

    def _start_master(self) -> None:
        ports = ["--port", str(self._port), "--webui-port", str(self._page)]
        self._start("master", "master.Master", ["--host", HOST, *ports])
        self._wait_for(0, "its master")

    def _start_worker(self, number: int) -> None:
        name = f"worker-{number}"
        limits = ["--cores", str(self._cores), "--memory", self._memory]
        place = ["--work-dir", str(self.folder / name / "work"), "--webui-port", "0"]
        self._start(name, "worker.Worker", ["--host", HOST, *limits, *place, self.master])

    def _start(self, name: str, kind: str, arguments: list[str]) -> None:
        folder = self.folder / name
        (folder / "conf").mkdir(parents=True)
        home = _spark_home()
        with (folder / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
                env=_environment(home, folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the test, which then stops us
            )

    def _wait_for(self, workers: int, what: str) -> None:
        for _ in Deadline(SECONDS_TO_START).polls(every=0.1):
            self._check_alive()
            state = master_state(f"http://{HOST}:{self._page}")
            if state.get("status") == "ALIVE" and state["aliveworkers"] >= workers:
                return
        raise ServerDied(
            f"a Spark cluster waited {SECONDS_TO_START:.0f} s for {what}",
            hint=f"look into the logs in {self.folder}",
        )

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = self.folder / name / "log"
                raise ServerDied(
                    f"Spark's {name} ended with status {process.returncode}: {_end_of(log)}",
                    hint=f"look into {log}",
                )


def master_state(page: str) -> dict[str, Any]:
    """What a master says of itself at its web address; nothing while it is not ready to.

    It opens its port first and adds its pages one by one: until the one for programs is there,
    the one for people answers in its place.
    """
    try:
        with _direct.open(f"{page}/json/", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
    except (OSError, HTTPException, ValueError):
        return {}
    return state


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is not installed", hint="pip install 'headrace[spark]'")
    return Path(spec.origin).parent


def _environment(home: Path, folder: Path) -> dict[str, str]:
    return os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_HOME": str(spark_java(Places.from_environment().cache).home),
    }


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process, name: str) -> bool:
    try:
        return name in process.cmdline()
    except psutil.Error:
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_of(log: Path) -> str:
    return " ".join(log.read_text("utf-8", "replace")[-300:].split())
