"""A Spark standalone on loopback, from the jars of pyspark: a master and some workers.

Ports are such as are free, files lie below one folder, and nothing is left running after the block.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

START_S = 120.0
"""Limit on the start of a process; half a minute is usual on a busy machine."""
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xss16m"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executor.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}
_QUIET = "rootLogger.level = off\n"


@dataclass
class Standalone:
    """A master and its workers."""

    folder: Path
    master: str = ""
    """Its URL."""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Variables of a process that works with it."""
        return {
            **_daemon_environment(self.folder),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "PYSPARK_PYTHON": sys.executable,
        }

    def add_worker(self) -> None:
        """Start a worker of one core, and wait until the master knows it."""
        number = len(self.workers)
        log = self.folder / f"worker-{number}.log"
        own = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}")]
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        name = "org.apache.spark.deploy.worker.Worker"
        self.workers.append(_start(self.folder, log, name, *where, *own, self.master))
        _wait(self.workers[-1], log, _REGISTERED)

    def kill_worker(self, number: int) -> list[int]:
        """Kill a worker and every process it has started, as when a machine loses power."""
        pids = _tree(self.workers[number].pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.workers[number].wait()
        return pids


@contextlib.contextmanager
def standalone(folder: Path, worker_count: int = 2) -> Iterator[Standalone]:
    """A master and workers, for as long as the block lasts.

    Raises:
        RuntimeError: one does not start.
    """
    conf = folder / "conf"
    conf.mkdir(parents=True)
    lines = [f"{name} {value}\n" for name, value in _SETTINGS.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    (conf / "log4j2.properties").write_text(_QUIET, encoding="utf-8")
    log = folder / "master.log"
    where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    made = Standalone(folder)
    master = _start(folder, log, "org.apache.spark.deploy.master.Master", *where)
    try:
        made.master = _wait(master, log, _STARTED)[1]
        for _ in range(worker_count):
            made.add_worker()
        yield made
    finally:
        pids = [pid for process in (master, *made.workers) for pid in _tree(process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in (master, *made.workers):
            process.wait()


def _daemon_environment(folder: Path) -> dict[str, str]:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return {
        **os.environ,
        "SPARK_HOME": str(Path(spec.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }


def _start(folder: Path, log: Path, *command: str) -> subprocess.Popen[bytes]:
    environment = _daemon_environment(folder)
    script = Path(environment["SPARK_HOME"]) / "bin/spark-class"
    with log.open("wb") as output:
        # A session of its own: the terminal's Ctrl-C is for who ends all in order.
        return subprocess.Popen(
            ["bash", str(script), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if match := pattern.search(log.read_text("utf-8", "replace")):
            return match
        time.sleep(0.1)
    last = "".join(log.read_text("utf-8", "replace").splitlines(keepends=True)[-5:])
    raise RuntimeError(f"Spark did not start within {START_S:.0f} s; {log.name} ends with:\n{last}")


def _tree(pid: int) -> list[int]:
    """List a process and its descendants; it comes first, so that nothing starts them again."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.split()
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    pids = [pid] if pid in parents else []
    for one in pids:
        pids += [child for child, parent in parents.items() if parent == one]
    return pids
