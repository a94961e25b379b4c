"""A provider on a loopback port: replays the streams it was given, one a request, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import TypeAdapter

# How long anything may take that is waited for. Never reached when all is well.
PATIENCE = 30.0

# What the tool `radar.picture` is called where a name has no dot.
PICTURE = "radar_picture_b33gn2"

Chunk = dict[str, Any] | str | bytes


def sse(chunks: Iterable[Chunk], *, done: bool = False, named: bool = False) -> bytes:
    """Server-sent events: dicts as JSON, text and bytes as they are. `named` events carry their type as their name."""
    lines = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            lines.append(chunk)
            continue
        data = chunk if isinstance(chunk, str) else json.dumps(chunk)
        name = f"event: {chunk['type']}\n" if named and isinstance(chunk, dict) else ""
        lines.append(f"{name}data: {data}\n\n".encode())
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def ndjson(chunks: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks)


def accepted(kind: Any, values: list[Any]) -> None:
    """Check values against the type that an SDK declares for them."""
    for value in values:
        TypeAdapter(kind).validate_python(value)


class Request:
    def __init__(self, path: str, body: Any) -> None:
        self.path = path
        self.body = body


class Provider:
    """Answers each POST with the next of `replies`: a body, or a body and its content type."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[tuple[bytes, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = PATIENCE

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.requests.append(Request(self.path, body))
                if not provider.replies:
                    self.send_error(500, "no reply is left")
                    return
                data, kind = provider.replies.pop(0)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("Connection", "close")
                self.end_headers()
                # Cut where no protocol would: clients must put it together again.
                for at in range(0, len(data), 97):
                    piece = data[at : at + 97]
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def will_say(self, data: bytes, kind: str = "text/event-stream") -> None:
        self.replies.append((data, kind))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()
