"""Connections between the processes of a job: who is missing, has failed, or is gone.

jax's processes join silently, and when process 0 dies, jax's client ends the others
with its stacks. So each process has a connection of its own to process 0, from before
jax joins until the end. Over it process 0 says who is missing, and a process says why
it fails; one whose connection closes is gone. jax's own connection passes a relay,
which stays open when process 0 dies.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from multiprocessing.connection import wait
from typing import Any, TextIO

from base.errors import UserError

_POLL = 1.0  # polling interval for missing processes, in seconds
_REPORT = 10.0  # seconds between two lines about them
_CLOSING = 10.0  # seconds in which the port of a job that has ended is free again
_NAMED = 8  # missing processes that a line names
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}  # variables that gRPC reads
_connections: dict[int, socket.socket] = {}  # of process 0 to all, of the others to it


def meet(
    address: str,
    count: int,
    number: int,
    timeout: float,
    failed: Callable[[int, str], None],
) -> str:
    """Waits until all processes of a job are present; returns the address for jax.

    Args:
        address: "HOST:PORT" of process 0.
        count: number of processes.
        number: number of this process.
        timeout: seconds to wait.
        failed: called later, in a thread, with the number of a process and its line
            (see `tell`), or "" if its connection has closed.

    Raises:
        TimeoutError: if the others do not arrive in time.
        UserError: if the port cannot be opened in process 0.
    """
    streams: dict[int, TextIO]
    host, _, port = address.rpartition(":")
    far, end = (host.strip("[]"), int(port)), time.monotonic() + timeout
    if number == 0:
        bound = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", address)  # as by jax
        _gather(int(bound.rpartition(":")[2]), count, end)
        streams = {n: x.makefile() for n, x in _connections.items()}
    else:
        address, streams = _relay(far), {0: _attend(far, count, number, end)}

    def watch(other: int, stream: TextIO) -> None:
        line = ""
        with contextlib.suppress(OSError, ValueError):
            line = stream.readline().strip()
        failed(other, line)

    for item in streams.items():
        threading.Thread(target=watch, args=item, daemon=True).start()
    return address


def call(function: Callable[..., None], *arguments: Any, **options: Any) -> None:
    """Calls a function in a thread, as signals do not end a wait in jax's client.

    Prints a line every ten seconds: all processes are present, but one is silent.
    """
    with futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(function, *arguments, **options)
        while not futures.wait([future], _REPORT).done:
            _say("waiting for the job: all processes have joined, one does not answer")
        future.result()


def tell(line: str) -> None:
    """Sends a line to process 0; in process 0, to all others."""
    for connection in [*_connections.values()]:
        with contextlib.suppress(OSError):
            connection.sendall(f"{line}\n".encode())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _gather(port: int, count: int, end: float) -> None:
    """Waits in process 0 until all others have connected."""
    due = time.monotonic() + _REPORT
    with _listen(port) as server:
        while len(_connections) < count - 1:
            closed = wait([server, *_connections.values()], _POLL)
            if server in closed:
                with contextlib.suppress(OSError, ValueError):
                    connection, _ = server.accept()
                    connection.settimeout(_POLL)
                    number = int(connection.recv(16))
                    connection.settimeout(None)
                    if 0 < number < count:
                        _connections[number] = connection
            for number in [n for n, x in _connections.items() if x in closed]:
                del _connections[number]
            missing = [f"{n}" for n in range(1, count) if n not in _connections]
            if time.monotonic() >= due and missing:
                due = time.monotonic() + _REPORT
                names = ", ".join(missing[:_NAMED]) + ", ..." * (len(missing) > _NAMED)
                line = (
                    f"waiting for the job: {count - len(missing)} of {count} processes "
                    f"have joined, missing: process {names}"
                )
                _say(line)
                tell(line)
            if time.monotonic() >= end:
                raise TimeoutError("others have not arrived")
    tell("")


def _listen(port: int) -> socket.socket:
    """Returns a socket at a port; jax would share it with another job's process 0."""
    dual, end = socket.has_dualstack_ipv6(), time.monotonic() + _CLOSING
    family = socket.AF_INET6 if dual else socket.AF_INET
    while True:
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        except OSError as error:
            if time.monotonic() >= end:
                raise UserError(
                    f"--coordinator: port {port} cannot be opened here "
                    f"({error.strerror}); each job needs a free port of its own, on "
                    "the host of process 0"
                ) from error
        time.sleep(_POLL)


def _attend(far: tuple[str, int], count: int, number: int, end: float) -> TextIO:
    """Waits in another process until process 0 says that all are present."""
    due, joined = time.monotonic() + _REPORT, "1 of 2 processes have joined, "
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(far, timeout=2 * _REPORT)
            connection.sendall(f"{number}\n".encode())
            stream = connection.makefile()
            for line in stream:
                if not line.strip():
                    connection.settimeout(None)
                    _connections[0] = connection
                    return stream
                _say(line.strip())
        if time.monotonic() >= due:
            due = time.monotonic() + _REPORT
            missing = (
                f"{joined * (count == 2)}missing: process 0, which does not answer"
            )
            _say(f"waiting for the job: {missing} at {far[0]}:{far[1]}")
        time.sleep(_POLL)
    raise TimeoutError("others have not arrived")


def _relay(far: tuple[str, int]) -> str:
    """Returns the address of a relay that stays open when the far end closes."""
    if not _PROXIES.isdisjoint(os.environ):  # of gRPC, which leads to no relay
        direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")
        os.environ["no_grpc_proxy"] = f"{direct},127.0.0.1".lstrip(",")
    server = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)

    def serve() -> None:
        while True:
            near, _ = server.accept()
            try:
                ends = near, socket.create_connection(far)
            except OSError:  # jax's client tries again
                near.close()
                continue
            for pair in (ends, ends[::-1]):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"
