"""HTTP endpoints of a worker for probes and Prometheus: ``/livez``, ``/readyz`` and ``/metrics``.

They run in the process that computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

Problem = Callable[[], str | None]
"""Returns why the worker is not ready to take jobs, or None if it is ready."""


class Server(WSGIServer):
    """A WSGI server that can rebind its port immediately after a restart."""

    allow_reuse_address = True
    daemon_threads = True


class SilentHandler(WSGIRequestHandler):
    """Does not log requests, because probes are frequent."""

    def log_message(self, *_: Any) -> None:
        """Discards the message."""


def application(problem: Problem) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Builds the WSGI application; ``/readyz`` returns 503 while ``problem`` reports one."""
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
    """Serves on ``port`` in a daemon thread until the process ends.

    Raises:
        OSError: the port is in use.
    """
    server = make_server("", port, application(problem), Server, SilentHandler)
    threading.Thread(target=server.serve_forever, name="exporter", daemon=True).start()
