"""A TCP proxy in front of the service that simulates network failures."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards connections to ``port`` on this machine; :attr:`url` is the proxy's address."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.refuse = 0
        """Number of further connections to close immediately."""
        self.cut_answers = 0
        """Number of further connections to cut at the first bytes of the response, which are lost.
        """
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Closes all open connections."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.refuse:
                    self.refuse -= 1
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target))
                self._open |= {client, server}
                lose, self.cut_answers = self.cut_answers > 0, max(0, self.cut_answers - 1)
                threading.Thread(
                    target=self._pump, args=(client, server, False), daemon=True
                ).start()
                threading.Thread(
                    target=self._pump, args=(server, client, lose), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, lose: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if lose:
                    break
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
