"""A TLS server that wants a certificate and, as OpenSSL does, says so before it hangs up."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Self

import trustme


class Strict:
    """Use as `with Strict(folder) as strict`; it refuses everyone, and counts them."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        self.refused = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        authority.configure_trust(self._context)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self._refuse(connection)

    def _refuse(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        tls = self._context.wrap_bio(incoming := ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), True)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65_536))
            except ssl.SSLError:
                break
        self.refused += 1
        connection.sendall(outgoing.read())
        connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while connection.recv(65_536):  # else the reset would overtake the word of why
                pass
