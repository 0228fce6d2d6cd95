"""Starts Spark's JVM as a child that ends with this process, and with nothing else.

PySpark can start it too, but is not prepared for signals:
- Interrupted while the JVM starts, PySpark removes the folder in which the JVM is to write its
  port. The JVM prints a stack trace, and stays. Here it is killed.
- SIGTERM for the process group reaches the JVM as well, and it is gone before this process has
  stopped its work in order. Here it ignores SIGTERM, as it ignores SIGINT with PySpark.

The JVM ends when its standard input is closed, so it does not outlive this process.
"""

import logging
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import OperationFailed
from headrace.spark.interrupts import interrupts

SECONDS_BETWEEN_LOOKS = 0.05
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def ensure_jvm(settings: Mapping[str, str]) -> None:
    """Start a JVM for PySpark, unless this process has one or was started by one."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None or _PORT in os.environ:
        return
    gateway = _launch(settings)
    interrupts.guard(gateway._gateway_client)
    SparkContext._ensure_initialized(gateway=gateway)


def _launch(settings: Mapping[str, str]) -> Any:
    process: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryDirectory(prefix="headrace-jvm-") as folder:
        file = Path(folder) / "connection"
        try:
            with interrupts.held_back():  # no process may start and remain unknown
                process = _start(settings, file)
            gateway = _connect(*_wait_for_connection(process, file))
        except BaseException:
            if process is not None:
                process.kill()
                process.wait()
            raise
    gateway.proc = process  # as long as somebody has it, its standard input stays open
    interrupts.kill = partial(_kill, process)
    return gateway


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it at once. py4j would log, with tracebacks, that it lost its connections."""
    logging.getLogger().addFilter(_is_not_of_py4j)
    process.kill()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _start(settings: Mapping[str, str], file: Path) -> "subprocess.Popen[bytes]":
    from pyspark.find_spark_home import _find_spark_home

    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(file)}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, env=os.environ | told, preexec_fn=_ignore_signals
    )


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _wait_for_connection(process: "subprocess.Popen[bytes]", file: Path) -> tuple[int, str]:
    """Port and secret, which the JVM writes when it is ready: an integer, a length and a text."""
    while not file.exists():
        if process.poll() is not None:
            raise OperationFailed(
                f"Spark's JVM ended while it started, with status {process.returncode}",
                hint="see what it printed above",
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)
    written = file.read_bytes()
    return int.from_bytes(written[:4]), written[8:].decode()


def _connect(port: int, secret: str) -> Any:
    """As PySpark does in a process that a JVM has started."""
    from pyspark import java_gateway

    launch: Any = java_gateway.launch_gateway  # it has no types
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        return launch()
    finally:
        for name in (_PORT, _SECRET):
            del os.environ[name]
