"""fetch: once, whole or not at all. The server is one of this process."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from tests.tensor.checks import equal
from tinycore import Tensor
from tinycore.errors import ArgumentError
from tinycore.tensor.fetch import FetchError, fetch

CONTENT = bytes(range(200))


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if "missing" in self.path:
            self.send_error(404)
            return
        self.server.keys.append(self.headers["X-Key"])  # type: ignore[attr-defined]
        body = gzip.compress(CONTENT) if "gz" in self.path else CONTENT
        if "damaged" in self.path:
            body = body[:20] + b"\xff" * 20 + body[40:]
        if self.path == "/gz-cut":
            body = body[:-30]
        if self.path == "/cut":  # by a server that went away, in the middle of a chunk
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"64\r\n" + CONTENT[:50])
            return
        self.send_response(200)
        self.send_header("content-length", str(len(body) + 5 * ("short" in self.path)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.asked = []  # type: ignore[attr-defined]
    server.keys = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def url(server: HTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


def test_a_file_is_fetched_once(server: HTTPServer, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file"
    for _ in range(2):
        assert fetch(url(server, "a"), name=target).read_bytes() == CONTENT
    assert len(server.asked) == 1  # type: ignore[attr-defined]
    fetch(url(server, "a"), name=target, allow_caching=False)
    assert len(server.asked) == 2  # type: ignore[attr-defined]


def test_names_and_folders(server: HTTPServer) -> None:
    first = fetch(url(server, "b"), name="named", subdir="tests")
    assert first.name == "named"
    assert first.parent.name == "tests"
    assert fetch(url(server, "c")) != fetch(url(server, "d"))
    assert fetch(str(first)) == first
    assert fetch(url(server, "gz"), gunzip=True).read_bytes() == CONTENT
    equal(Tensor.from_url(url(server, "e")).to(None), np.frombuffer(CONTENT, np.uint8))


@pytest.mark.parametrize("path", ["missing", "short", "cut"])
def test_a_failure_leaves_nothing(server: HTTPServer, tmp_path: Path, path: str) -> None:
    with pytest.raises(FetchError, match=path):
        fetch(url(server, path), name=tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["plain", "gz-cut", "gz-damaged", "gz-short"])
def test_what_does_not_unpack_leaves_nothing(server: HTTPServer, tmp_path: Path, path: str) -> None:
    with pytest.raises(FetchError, match=path):
        fetch(url(server, path), name=tmp_path / "x", gunzip=True)
    assert not list(tmp_path.iterdir())


def test_a_failure_keeps_the_old_copy(server: HTTPServer, tmp_path: Path) -> None:
    copy = fetch(url(server, "a"), name=tmp_path / "x")
    with pytest.raises(FetchError):
        fetch(url(server, "cut"), name=tmp_path / "x", allow_caching=False)
    assert copy.read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_headers_are_sent_and_tell_copies_apart(server: HTTPServer) -> None:
    plain = fetch(url(server, "h"))
    named = fetch(url(server, "h"), headers={"X-Key": "secret"})
    assert plain != named
    assert server.keys == [None, "secret"]  # type: ignore[attr-defined]


def test_files_by_url(tmp_path: Path) -> None:
    origin = tmp_path / "a file.gz"
    origin.write_bytes(gzip.compress(CONTENT))
    copy = fetch(origin.as_uri(), name=tmp_path / "copy", gunzip=True)
    assert copy.read_bytes() == CONTENT
    equal(Tensor.from_url(origin.as_uri(), gunzip=True), np.frombuffer(CONTENT, np.uint8))
    with pytest.raises(FetchError, match="nothing"):
        fetch((tmp_path / "nothing").as_uri())
    for bad in ("no-scheme", "gopher://x/y", "http://[broken"):
        with pytest.raises(FetchError, match="cannot fetch"):
            fetch(bad)


def test_copies_stay_in_the_cache_folder(server: HTTPServer) -> None:
    for where in ({"subdir": "../.."}, {"name": ".."}, {"subdir": "/etc"}):
        with pytest.raises(ArgumentError, match="leads out of the cache folder"):
            fetch(url(server, "a"), **where)  # type: ignore[arg-type]
    assert not server.asked  # type: ignore[attr-defined]
