"""A TCP proxy that can be a bad network."""

import contextlib
import socket
import threading
import time

PART = 1 << 16


def _end(connection):
    """Also for the thread that reads it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class BadWire:
    """Passes what comes to `port` on to a port of this host, and back. Thread-safe."""

    def __init__(self, target):
        self._target = ("127.0.0.1", target)
        self._passes = threading.Event()
        self._passes.set()
        self._bytes_per_second = None
        self._flips = False
        self._lock = threading.Lock()
        self._sockets = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self):
        self._bytes_per_second, self._flips = None, False
        self._passes.set()

    def slow_down(self, bytes_per_second):
        """What goes to the target has this rate from now on."""
        self._bytes_per_second = bytes_per_second

    def flip_bits(self):
        """One bit of each large part that goes to the target is another one from now on."""
        self._flips = True

    def hold(self):
        """Nothing passes from now on; connections stay."""
        self._passes.clear()

    def close(self):
        """Ends all connections, and takes no more."""
        _end(self._listener)
        with self._lock:
            for one in self._sockets:
                _end(one)

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return  # ended
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._sockets |= {near, far}
            for source, sink, forward in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=(source, sink, forward), daemon=True).start()

    def _carry(self, source, sink, forward):
        try:
            while part := source.recv(PART):
                self._passes.wait()
                sink.sendall(self._spoil(part) if forward else part)
        except OSError:
            pass  # one of the two has ended, so the other does
        for one in (source, sink):
            _end(one)

    def _spoil(self, part):
        if self._bytes_per_second is not None:
            time.sleep(len(part) / self._bytes_per_second)
        if not self._flips or len(part) < 512:
            return part
        spoilt = bytearray(part)
        spoilt[len(part) - 1] ^= 1
        return bytes(spoilt)
