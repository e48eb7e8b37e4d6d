"""A simulated internet for tests of outgoing requests, and attempts to reach private addresses."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

from tests.stack import png

INSIDE = "127.0.0.2"
"""Address of a private service that must not be reachable."""

OUTSIDE = "127.0.0.3"
"""Address of the simulated internet, the only loopback address that is allowed."""


class Internet(BaseHTTPRequestHandler):
    """A host with normal, invalid, slow and redirecting responses."""

    def do_GET(self) -> None:
        command, _, rest = self.path[1:].partition("/")
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        getattr(self, f"do_{command}", self.do_photo)(unquote(rest))

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_photo(self, _: str) -> None:
        self.answer(200, png(), Content_Type="image/png")

    def do_to(self, where: str) -> None:
        self.answer(302, Location=where)

    def do_status(self, code: str) -> None:
        self.answer(int(code), png())

    def do_gzip(self, _: str) -> None:
        self.answer(200, b"\x1f\x8b", Content_Encoding="gzip")

    def do_endless(self, _: str) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            self.server.seen.append("hung up")  # type: ignore[attr-defined]

    def do_drip(self, where: str) -> None:
        """Sends headers or body slowly, one byte at a time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if where == "body" else b"X-A: "))
        try:
            for _ in range(200):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            self.server.seen.append("hung up")  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int = 0) -> None:
        super().__init__((host, port), Internet)
        self.seen: list[str] = []

    def handle_error(self, *_: Any) -> None:
        pass  # the tests disconnect on purpose


def served(host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(host, port)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


ESCAPES = [
    "127.0.0.1",
    "127.0.0.2",
    "127.0.0.2.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "2130706434",
    "0x7f000002",
    "0x7f.0.0.2",
    "0177.0.0.2",
    "127.2",
    "127.0.2",
    "0",
    "0.0.0.0",
    "127.0.0.02",
    "%31%32%37.0.0.2",
    "127.0.0.2%00.example.org",
    "127。0。0。2",
    "①②⑦.0.0.2",
    "user@127.0.0.2",
    "127.0.0.3@127.0.0.2",
    "127.0.0.3:80@127.0.0.2",
    "127.0.0.3\\@127.0.0.2",
    "[::1]",
    "[::]",
    "[::127.0.0.2]",
    "[::ffff:127.0.0.2]",
    "[::ffff:7f00:2]",
    "[0:0:0:0:0:ffff:7f00:0002]",
    "[64:ff9b::127.0.0.2]",
    "[64:ff9b:1::7f00:2]",
    "[2002:7f00:2::1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffd]",
    "[fe80::5efe:7f00:2]",
    "[2001:db8::200:5efe:7f00:2]",
    "[fe80::1%25lo]",
    "[fd00:ec2::254]",
    "[v1.127.0.0.2]",
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "metadata.google.internal",
    "",
    ".",
    "-",
    "a..b",
    "a b",
    "a\tb",
]


def answers(monkeypatch: pytest.MonkeyPatch, *rounds: list[str]) -> Callable[[], int]:
    """Simulates a name server controlled by an attacker; returns its queries."""
    real, asked = socket.getaddrinfo, []

    def look_up(host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *rest, **more)
        asked.append(host)
        found = rounds[min(len(asked), len(rounds)) - 1]
        return [
            (
                socket.AF_INET6 if ":" in one else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (one, port),
            )
            for one in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return lambda: len(asked)
