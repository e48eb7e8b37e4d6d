"""A worker's port for orchestrators and Prometheus: ``/livez``, ``/readyz`` and ``/metrics``, in
the process that computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

Problem = Callable[[], str | None]
"""What keeps the worker from taking jobs; None when nothing does."""


class Server(WSGIServer):
    """May follow a predecessor on its port at once."""

    allow_reuse_address = True
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Probes are not worth a line each."""

    def log_message(self, *_: Any) -> None:
        """See the base class."""


def application(problem: Problem) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """The WSGI application."""
    metrics = make_wsgi_app()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            case "/livez":
                status, text = "200 OK", "alive"
            case "/readyz":
                found = problem()
                status, text = ("503 Service Unavailable", found) if found else ("200 OK", "ready")
            case _:
                status, text = "404 Not Found", "not found"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


def serve(port: int, problem: Problem) -> None:
    """Answers on ``port`` from a thread until the process ends.

    Raises:
        OSError: the port is taken.
    """
    server = make_server("", port, application(problem), Server, Quiet)
    threading.Thread(target=server.serve_forever, name="exporter", daemon=True).start()
