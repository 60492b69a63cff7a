# SPDX-License-Identifier: BSD-3-Clause
"""What passes a bootstrap socket's bytes on until it is told to break: what a
cable, a proxy or a container's network may do to a connection."""

import socket
import threading


class Proxy:
    """To a URL "tcp://127.0.0.1:port", or of tls://."""

    def __init__(self, to):
        scheme, _, place = to.strip().partition("://")
        host, port = place.rsplit(":", 1)
        self.to = (host, int(port))
        self.lock = threading.Lock()
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"
        self.listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                pair = [self.listener.accept()[0], None]
            except OSError:
                return
            try:
                pair[1] = socket.socket(pair[0].family)
                pair[1].connect(self.to)
            except OSError:
                pair[0].close()
                pair[1].close()
                continue
            with self.lock:
                self.pairs.append(pair)
            for way in (pair, pair[::-1]):
                threading.Thread(target=self._pass_on, args=way,
                                 daemon=True).start()

    def _pass_on(self, from_, to):
        try:
            while data := from_.recv(65536):
                to.sendall(data)
        except OSError:
            pass
        for end in (from_, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Breaks what stands; who dials next is passed on again."""
        with self.lock:
            for pair in self.pairs:
                for end in pair:
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
            self.pairs.clear()

    def close(self):
        self.listener.close()
        self.cut()
