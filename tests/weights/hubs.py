"""A stand-in of the hub on this machine: the few endpoints that huggingface_hub asks, over folders made on the spot."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Files by name for each commit, and which commit a branch is at."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    status: int = 200  # what is answered instead, if not 200
    code: str = ""  # X-Error-Code

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        name = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        return name


@dataclass
class Hub:
    """The stand-in: what it holds and what it was asked."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # METHOD path
    cut: dict[str, int] = field(default_factory=dict)  # files whose next answer ends after so many bytes
    address: str = ""

    def fetched(self) -> set[str]:
        """Names of the files that were really sent."""
        found = (re.fullmatch(r"GET .*/resolve/[^/]+/(.+)", line) for line in self.asked)
        return {match[1] for match in found if match}

    def add(self, name: str, folder: Path, more: dict[str, bytes] | None = None, branch: str = "main") -> Repository:
        """A repository with the files of a folder."""
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        repository = self.repositories.setdefault(name, Repository())
        repository.commit({**files, **(more or {})}, branch)
        return repository


@contextmanager
def served() -> Iterator[Hub]:
    """A hub that answers while this lasts."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers for a hub."""

    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        found = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        match = found or file
        repository = self.hub.repositories.get(match[1]) if match else None
        if match is None or repository is None:
            return self._say(HTTPStatus.NOT_FOUND, {"X-Error-Code": "RepoNotFound"})
        if repository.status != HTTPStatus.OK:
            return self._say(repository.status, {"X-Error-Code": repository.code})
        revision = (found[3] if found else file[2] if file else None) or "main"
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            return self._say(HTTPStatus.NOT_FOUND, {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if found and found[2] == "tree":
            return self._json([_entry(name, data) for name, data in files.items()])
        if found:
            listed = [{"rfilename": name} for name in files]
            return self._json({"id": match[1], "modelId": match[1], "sha": commit, "siblings": listed, "tags": []})
        assert file is not None
        if file[3] not in files:
            return self._say(HTTPStatus.NOT_FOUND, {"X-Error-Code": "EntryNotFound"})
        return self._file(file[3], files[file[3]], commit)

    def _json(self, data: Any) -> None:
        self._say(HTTPStatus.OK, {"Content-Type": "application/json"}, json.dumps(data).encode())

    def _file(self, name: str, data: bytes, commit: str) -> None:
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        head = {"ETag": etag, "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and self.command == "GET":
            first, last = int(asked[1]), int(asked[2] or len(data) - 1)
            head["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return self._say(HTTPStatus.PARTIAL_CONTENT, head, data[first : last + 1])
        if self.command == "GET" and name in self.hub.cut:
            return self._broken(head, data, self.hub.cut.pop(name))
        return self._say(HTTPStatus.OK, head, data)

    def _broken(self, head: dict[str, str], data: bytes, after: int) -> None:
        """An answer that ends before it should."""
        self.send_response(HTTPStatus.OK)
        for key, value in {**head, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data[:after])
        self.close_connection = True

    def _say(self, status: int, head: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {**head, "Content-Length": str(len(body)), "Connection": "close"}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
        self.close_connection = True


def _entry(name: str, data: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
