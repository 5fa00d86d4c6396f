"""The proxy passes frames on unchanged, and does to them what its rules say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from reconcile.lab.proxy import Api, FaultProxy, parse_request
from tests.ports import ports_of

PORTS = ports_of("proxy")
BODY = b"and the rest"


def request(api: Api, correlation: int, client_id: str | None = "c") -> bytes:
    """Build a request's frame."""
    name = (client_id or "").encode()
    return struct.pack(">hhih", api, 1, correlation, -1 if client_id is None else len(name)) + name + BODY


class Client:
    """A client with one connection."""

    def __init__(self, port: int = PORTS.controller) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> bytes | None:
        """Wait for an answer; None when the connection ends."""
        size = self._file.read(4)
        return self._file.read(*struct.unpack(">i", size)) if size else None


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its correlation id and what follows its header."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            frame = await reader.readexactly(*struct.unpack(">i", await reader.readexactly(4)))
            answer = struct.pack(">i", parse_request(frame).correlation) + BODY
            writer.write(struct.pack(">i", len(answer)) + answer)
    writer.close()


@pytest.fixture(scope="module", autouse=True)
def broker() -> Iterator[None]:
    """A server that answers everything."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(echo, "127.0.0.1", PORTS.kafka))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield

    async def close() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=5) if others else None

    asyncio.run_coroutine_threadsafe(close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(PORTS.controller, PORTS.kafka) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    with closing(Client()) as connected:
        yield connected


def answered(correlation: int, body: bytes = BODY) -> bytes:
    """What a client gets."""
    return struct.pack(">i", correlation) + body


@pytest.mark.parametrize("client_id", ["c", "zoë", "", None])
def test_a_header_is_read(client_id: str | None) -> None:
    """It says the kind, the version, the correlation id and the client's id, which may be missing."""
    found = parse_request(request(Api.END_TXN, 7, client_id))
    assert (Api.END_TXN, 1, 7, client_id) == (found.api, found.version, found.correlation, found.client_id)


def test_without_a_rule_all_passes(proxy: FaultProxy, client: Client) -> None:
    """Frames come through as they are, and the proxy knows them."""
    frames = [request(Api.PRODUCE, 1), request(Api.END_TXN, 2)]
    for frame in frames:
        client.send(frame)
    assert [answered(1), answered(2)] == [client.answer(), client.answer()]
    assert [frames[1]] == [each.frame for each in proxy.seen(Api.END_TXN)]


def test_a_lost_request_does_not_reach_the_broker(proxy: FaultProxy, client: Client) -> None:
    """Its connection goes on."""
    rule = proxy.when(Api.END_TXN).drop()
    client.send(request(Api.END_TXN, 1))
    client.send(request(Api.END_TXN, 2))
    assert answered(2) == client.answer()
    assert [1] == [each.correlation for each in rule.met]


def test_a_severed_request_ends_its_connection(proxy: FaultProxy, client: Client) -> None:
    """Another connection is as good as before, and the broker can still get what was lost."""
    rule = proxy.when(Api.END_TXN).sever()
    client.send(request(Api.END_TXN, 1))
    assert client.answer() is None
    with closing(Client()) as other:
        other.send(request(Api.END_TXN, 2))
        assert answered(2) == other.answer()
    assert rule.release() == BODY


def test_an_answer_can_be_lost(proxy: FaultProxy, client: Client) -> None:
    """The broker has met the request, and the client does not hear of it."""
    proxy.when_answered(Api.END_TXN).sever()
    client.send(request(Api.END_TXN, 1))
    assert client.answer() is None
    assert [1] == [each.correlation for each in proxy.seen(Api.END_TXN)]


def test_the_proxy_can_answer(proxy: FaultProxy, client: Client) -> None:
    """The client gets the body under its own correlation id."""
    proxy.when(Api.END_TXN).answer(b"no")
    client.send(request(Api.END_TXN, 9))
    assert answered(9, b"no") == client.answer()


def test_a_delay_holds_back_what_is_behind_it(proxy: FaultProxy, client: Client) -> None:
    """All of it comes in the end, in order."""
    rule = proxy.when(Api.END_TXN).delay(0.01)
    client.send(request(Api.END_TXN, 1))
    client.send(request(Api.PRODUCE, 2))
    assert [answered(1), answered(2)] == [client.answer(), client.answer()]
    rule.wait()


def test_a_rule_is_for_one_client_and_one_count(proxy: FaultProxy, client: Client) -> None:
    """Others' requests neither meet it nor count."""
    rule = proxy.when(Api.END_TXN, client_id="mine", nth=2, times=2).answer(b"no")
    names = ["mine", "theirs", "mine", "mine", "mine"]
    answers = []
    for number, name in enumerate(names):
        client.send(request(Api.END_TXN, number, name))
        answers.append((client.answer() or b"")[4:])
    assert [BODY, BODY, b"no", b"no", BODY] == answers
    assert [2, 3] == [each.correlation for each in rule.met]


def test_forgotten_rules_do_nothing(proxy: FaultProxy, client: Client) -> None:
    """All passes again."""
    proxy.when(Api.END_TXN).sever()
    proxy.forget_rules()
    client.send(request(Api.END_TXN, 1))
    assert answered(1) == client.answer()
