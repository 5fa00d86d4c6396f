"""A schema registry for the lab and the tests: subjects, versions, ids and references, behind Confluent's protocol.

It keeps what it is given. It compiles nothing, so Protobuf has to be registered as descriptors, as Confluent's own
clients do; a real one serves its text as well.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403


@dataclass
class Subject:
    """The ids of a subject's versions, from 1 on; those that are deleted softly are hidden."""

    versions: dict[int, int] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)

    def shown(self, *, deleted: bool = False) -> list[int]:
        """List the versions that are not deleted, or all."""
        return [each for each in self.versions if deleted or each not in self.hidden]


@dataclass
class Registry:
    """What a registry holds, and how it answers."""

    user: str | None = None
    password: str | None = None
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The paths that were asked for."""
    answer: tuple[int, str] | None = None
    """What is said in place of an answer."""
    answer_below: str = "/"
    """How the paths begin to which it is said."""
    stalled: threading.Event = field(default_factory=threading.Event)
    """Set while it takes questions and says nothing."""
    resumed: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Keep a schema under a subject; return its id, the same for the same schema."""
        said: dict[str, Any] = {"schema": schema, "schemaType": kind, "references": references or []}
        with self._lock:
            number = next((known for known, each in self.schemas.items() if each == said), len(self.schemas) + 1)
            self.schemas[number] = said
            kept = self.subjects.setdefault(subject, Subject())
            version = next((known for known, each in kept.versions.items() if each == number), len(kept.versions) + 1)
            kept.versions[version] = number
            kept.hidden.discard(version)
            return number

    def reply(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Choose the answer to a question."""
        at = urlsplit(path)
        options = {name: values[-1] for name, values in parse_qs(at.query).items()}
        deleted = options.get("deleted") == "true"
        match method, *map(unquote, at.path.strip("/").split("/")):
            case "GET", "schemas", "types":
                return 200, ["AVRO", "JSON", "PROTOBUF"]
            case "GET", "schemas", "ids", number:
                found = self.schemas.get(int(number))
                return _unknown(_NO_SCHEMA) if found is None else (200, _shown(found))
            case "GET", "subjects":
                return 200, [name for name, each in self.subjects.items() if each.shown(deleted=deleted)]
            case "POST", "subjects", subject, "versions":
                kind, references = body.get("schemaType") or "AVRO", body.get("references")
                return 200, {"id": self.register(subject, body["schema"], kind, references)}
            case "POST", "subjects", subject:
                return self._look_up(subject, body)
            case "GET", "subjects", subject, "versions":
                versions = self._subject(subject, deleted=deleted)
                return (200, versions) if versions else _unknown(_NO_SUBJECT)
            case "GET", "subjects", subject, "versions", version:
                return self._version(subject, version, deleted=deleted)
            case "DELETE", "subjects", subject:
                return self._delete(subject, for_good=options.get("permanent") == "true")
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def delete(self, subject: str, *, for_good: bool = False) -> None:
        """Delete a subject; for good, its schemas are gone too."""
        self._delete(subject, for_good=for_good)

    def _subject(self, subject: str, *, deleted: bool = False) -> list[int]:
        return self.subjects[subject].shown(deleted=deleted) if subject in self.subjects else []

    def _version(self, subject: str, version: str, *, deleted: bool) -> tuple[int, Any]:
        versions = self._subject(subject, deleted=deleted)
        if not versions:
            return _unknown(_NO_SUBJECT)
        wanted = versions[-1] if version in ("latest", "-1") else int(version)
        if wanted not in versions:
            return _unknown(_NO_VERSION)
        number = self.subjects[subject].versions[wanted]
        return 200, {"subject": subject, "version": wanted, "id": number, **_shown(self.schemas[number])}

    def _look_up(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        for version in self._subject(subject):
            if self.schemas[self.subjects[subject].versions[version]]["schema"] == body["schema"]:
                return self._version(subject, str(version), deleted=False)
        return _unknown(_NO_SCHEMA)

    def _delete(self, subject: str, *, for_good: bool) -> tuple[int, Any]:
        if subject not in self.subjects:
            return _unknown(_NO_SUBJECT)
        versions = self._subject(subject, deleted=for_good)
        self.subjects[subject].hidden.update(versions)
        if for_good:
            gone = set(self.subjects.pop(subject).versions.values())
            for number in gone - {each for other in self.subjects.values() for each in other.versions.values()}:
                del self.schemas[number]
        return 200, versions


@contextmanager
def serving(registry: Registry, certificate: Path | None = None) -> Iterator[Registry]:
    """Serve a registry on loopback, on a port that is free, for a block; with a certificate by TLS alone."""

    class Answers(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            registry.asked.append(self.path)
            if registry.stalled.is_set():
                registry.resumed.wait()
                self.close_connection = True
                return
            if registry.answer is not None and self.path.startswith(registry.answer_below):
                self._send(*registry.answer)
            elif not self._is_let_in():
                self._send(401, json.dumps({"error_code": 40101, "message": "Unauthorized"}))
            else:
                status, found = registry.reply(self.command, self.path, body)
                self._send(status, json.dumps(found))

        do_GET = do_POST = do_DELETE = _reply  # noqa: N815

        def _is_let_in(self) -> bool:
            login = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
            return registry.user is None or self.headers.get("Authorization") == f"Basic {login}"

        def _send(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            if 300 <= status < 400:
                self.send_header("Location", "/login")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        registry.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            registry.resumed.set()
            server.shutdown()
            thread.join()


def _shown(schema: dict[str, Any]) -> dict[str, Any]:
    """Build what is said of a schema: Avro's type is left out, and so are references where there are none."""
    return {name: value for name, value in schema.items() if value and not (name == "schemaType" and value == "AVRO")}


def _unknown(code: int) -> tuple[int, Any]:
    said = {_NO_SUBJECT: "Subject not found", _NO_VERSION: "Version not found", _NO_SCHEMA: "Schema not found"}
    return 404, {"error_code": code, "message": said[code]}
