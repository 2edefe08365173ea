"""Serve a built site on localhost and open it in the browser."""

from __future__ import annotations

import functools
import http.server
import sys
import webbrowser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(folder: str, ports: range = range(8000, 8020)) -> http.server.ThreadingHTTPServer:
    """A server on the first free port."""
    for port in ports:
        try:
            return http.server.ThreadingHTTPServer(
                ("127.0.0.1", port), functools.partial(Quiet, directory=folder)
            )
        except OSError:
            continue
    raise SystemExit(f"ports {ports.start} to {ports.stop - 1} are all in use")


if __name__ == "__main__":
    server = serve(sys.argv[1] if len(sys.argv) > 1 else "_build/html")
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    print(f"The book is at {address} (Ctrl-C stops)", flush=True)
    webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
