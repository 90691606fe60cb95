"""Presence of the processes of a job: who has joined, and who is gone.

jax's processes join silently, and when process 0 dies, jax's client ends the others
with its stacks. So each process has a connection of its own to process 0, from before
jax joins until the end. Over it process 0 says who is missing, and later who is gone.
jax's own connection passes a relay, which stays open when process 0 dies.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from typing import TextIO

from training.cluster import job

_POLL = 1.0  # polling interval for missing processes, in seconds
_REPORT = 10.0  # seconds between two lines about them
_NAMED = 8  # missing processes that a line names
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}  # variables that gRPC reads


def meet(address: str, count: int, number: int) -> str:
    """Waits until all processes of a job are present.

    From then on, a process whose connection closes ends the job; see `job.gone`.

    Args:
        address: "HOST:PORT" of process 0.
        count: number of processes.
        number: number of this process.

    Returns:
        The address that jax's client shall connect to.
    """
    host, _, port = address.rpartition(":")
    if number == 0:
        bound = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", address)  # as by jax
        _gather(int(bound.rpartition(":")[2]), count)
        return address
    far = host.strip("[]"), int(port)
    _attend(far, count, number)
    return _relay(far)


def listen(port: int) -> socket.socket:
    """Returns a socket that listens to a port at all addresses of this host."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def _gather(port: int, count: int) -> None:
    """Waits in process 0 until all others have connected."""
    present: dict[int, socket.socket] = {}
    due = time.monotonic() + _REPORT
    with listen(port) as server:
        server.settimeout(_POLL)
        while len(present) < count - 1:
            with contextlib.suppress(OSError, ValueError):
                connection, _ = server.accept()
                connection.settimeout(_POLL)
                number = int(connection.recv(16))
                if 0 < number < count:
                    present[number] = connection
            present = {n: x for n, x in present.items() if not _has_closed(x)}
            if time.monotonic() >= due:
                due = time.monotonic() + _REPORT
                missing = [n for n in range(1, count) if n not in present]
                more = ", ..." if len(missing) > _NAMED else ""
                line = _line(
                    f"{count - len(missing)} of {count} processes have joined, "
                    f"missing: process {', '.join(map(str, missing[:_NAMED]))}{more}"
                )
                _tell(present, line)
    _tell(present, "")
    for number, connection in present.items():
        connection.settimeout(None)
        threading.Thread(
            target=_watch, args=(number, connection, present), daemon=True
        ).start()


def _watch(
    number: int, connection: socket.socket, present: dict[int, socket.socket]
) -> None:
    """Waits in process 0 until the connection of a process closes."""
    with contextlib.suppress(OSError):
        while connection.recv(16):
            pass
    job.gone(number, lambda: _tell(present, str(number)))


def _attend(far: tuple[str, int], count: int, number: int) -> None:
    """Waits in another process until process 0 says that all are present."""
    due = time.monotonic() + _REPORT
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(far, timeout=_REPORT)
            connection.settimeout(None)
            connection.sendall(f"{number}\n".encode())
            lines = connection.makefile()
            for line in lines:
                if not line.strip():
                    threading.Thread(target=_listen, args=[lines], daemon=True).start()
                    return
                print(line, end="", file=sys.stderr, flush=True)
        if time.monotonic() >= due:
            due = time.monotonic() + _REPORT
            joined = "1 of 2 processes have joined, " if count == 2 else ""
            where = f"{far[0]}:{far[1]}"
            _line(f"{joined}missing: process 0, which does not answer at {where}")
        time.sleep(_POLL)


def _listen(lines: TextIO) -> None:
    """Waits in another process until process 0 says who is gone, or is gone itself."""
    line = ""
    with contextlib.suppress(OSError):
        line = lines.readline()
    job.gone(int(line or 0))


def _line(text: str) -> str:
    line = f"waiting for the job: {text}"
    print(line, file=sys.stderr, flush=True)
    return line


def _tell(present: dict[int, socket.socket], line: str) -> None:
    for connection in present.values():
        with contextlib.suppress(OSError):
            connection.sendall(f"{line}\n".encode())


def _has_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return not connection.recv(16)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _relay(far: tuple[str, int]) -> str:
    """Returns the address of a relay that stays open when the far end closes."""
    if not _PROXIES.isdisjoint(os.environ):  # of gRPC, which leads to no relay
        direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")
        os.environ["no_grpc_proxy"] = f"{direct},127.0.0.1".lstrip(",")
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            near, _ = server.accept()
            try:
                ends = near, socket.create_connection(far)
            except OSError:  # jax's client tries again
                near.close()
                continue
            for pair in (ends, ends[::-1]):
                threading.Thread(target=_copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
