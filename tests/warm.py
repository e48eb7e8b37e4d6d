"""Runs Python programs in forks of a process that has already imported the library.

Importing torch and transformers takes most of the time of a short command. The documentation has
dozens of them, so its tests start them here: ``serve`` imports once, and each program is a fork
with its own arguments, folder, environment and standard streams.

    python tests/warm.py serve SOCKET              the server
    python -S tests/warm.py run SOCKET ARGUMENTS   as 'python ARGUMENTS', in a fork
"""

import json
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Any

STREAMS = (0, 1, 2)


def serve(path: str) -> None:
    """Accepts programs until the process is terminated; in the fork of one, returns after it."""
    from aps_core.runtime.process import prepare_environment

    prepare_environment()
    for module in ("aps_cli.main", "aps_core.engines.engine", "aps_core.priors.mmada.network"):
        import_module(module)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen()
    os.rename(f"{path}.new", path)  # it now accepts connections
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection)
            return
        connection.close()


def _answer(connection: socket.socket) -> None:
    """Runs the program in a further fork and sends its exit status; returns in that fork."""
    sent, streams, _, _ = socket.recv_fds(connection, 1 << 20, len(STREAMS))
    program = os.fork()
    if program:
        _, status = os.waitpid(program, 0)
        connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
        os._exit(0)
    connection.close()
    _become(json.loads(sent), streams)


def _become(program: dict[str, Any], streams: list[int]) -> None:
    for stream, target in zip(streams, STREAMS, strict=True):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    option, what, *rest = program["arguments"]
    if option == "-m":
        from aps_cli.main import main

        assert what == "aps_cli.main"
        sys.argv = ["aps", *rest]
        main()
    else:
        assert option == "-c"
        sys.argv = ["-c", *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


def run(path: str, arguments: list[str]) -> int:
    """Runs ``python ARGUMENTS`` in a fork of the server; returns its exit code."""
    program = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(program).encode()], STREAMS)
        return connection.recv(1)[0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], sys.argv[3:]))
