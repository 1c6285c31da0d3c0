"""The explorer and others: addresses that can be opened, idle connections, runs that are kept."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="starlette and uvicorn are not installed")
from serving import served
from visitors import Visitor

import posteer.sweeps.store
from posteer.explorer.asked import asked_of
from posteer.explorer.menu import Menu
from posteer.explorer.runs import Runs
from posteer.explorer.server import MOST_CONNECTIONS
from posteer.sweeps.store import RunStore

ASKED = {"model": "exact:urn", "utility": {"kind": "dyck"}, "horizon": 4, "length": 6,
         "method": "coordinate", "seed": 0, "beside": False}  # fmt: skip


def opened(address):
    """The status of an address that is opened as it is printed."""
    parts = urlsplit(address)
    line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    line.request("GET", f"{parts.path}?{parts.query}")
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


@pytest.mark.parametrize("host", ["0.0.0.0", "0"])
def test_all_addresses_of_a_machine_are_told_as_ones_that_can_be_opened(host, tmp_path):
    with served(tmp_path / "runs", host=host) as serving:
        assert urlsplit(serving.address).hostname == "127.0.0.1"
        assert urlsplit(serving.address_elsewhere).hostname == socket.gethostname().lower()
        assert opened(serving.address) == 200
        named = {"Host": f"{socket.gethostname()}:{serving.port}"}
        assert Visitor(serving).ask("GET", "/api/menu", **named).status == 401, "its own name"


def test_an_address_of_one_machine_is_told_as_it_is(tmp_path):
    with served(tmp_path / "runs") as serving:
        assert urlsplit(serving.address).hostname == "127.0.0.1"
        assert serving.address_elsewhere is None


def idle(serving, first=b""):
    """A connection that says so much, and no more."""
    line = socket.create_connection(("127.0.0.1", serving.port), timeout=60)
    line.sendall(first)
    return line


def closed_by_server(line):
    """Wait until the other side closes; what it said before."""
    said = b""
    while more := line.recv(2**16):
        said += more
    line.close()
    return said


def test_idle_connections_do_not_keep_others_out(tmp_path):
    with served(tmp_path / "runs", patience=3.0) as serving:
        host = f"Host: 127.0.0.1:{serving.port}\r\n".encode()
        whole = b"GET / HTTP/1.1\r\n" + host + b"\r\n"
        body = b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 9\r\n\r\n"
        begun = (b"", b"GET / HTTP/1.1\r\nHost:", whole, whole + b"GET /", body)
        lines = [idle(serving, begun[at % 5]) for at in range(MOST_CONNECTIONS)]
        for line in lines:
            closed_by_server(line)
        assert opened(serving.address) == 200


def test_who_listens_to_a_run_is_not_idle(tmp_path):
    with served(tmp_path / "runs", patience=2.0) as serving:
        visitor = Visitor(serving).enter()
        with serving.runs.hand:  # the run waits
            run = visitor.post("/api/runs", **ASKED)
            asked = f"GET /api/runs/{run['id']}/messages HTTP/1.1\r\nHost: {visitor.host}\r\n"
            listener = idle(serving, f"{asked}Cookie: {visitor.cookie}\r\n\r\n".encode())
            assert listener.recv(12) == b"HTTP/1.1 200"
            for _ in range(2):
                closed_by_server(idle(serving))
        said = closed_by_server(listener).decode()
        assert '"state": "done"' in said


def test_a_run_that_is_done_again_is_there_at_any_moment(tmp_path, monkeypatch):
    menu = Menu()
    runs = Runs(menu, tmp_path / "runs")

    def once():
        run = runs.start(asked_of(menu, ASKED))
        assert run.ended.wait(60)
        return run.state

    assert once() == "done"
    (name,) = RunStore(tmp_path / "runs").names()
    before = RunStore(tmp_path / "runs").read(name)
    with monkeypatch.context() as full:

        def fails(*_given):
            raise OSError(28, "No space left on device")

        full.setattr(posteer.sweeps.store, "write_each", fails)
        assert once() == "failed"
        assert RunStore(tmp_path / "runs").read(name) == before, "it was not forgotten"
    assert once() == "done"
    assert RunStore(tmp_path / "runs").names() == {name}


def test_a_run_takes_the_place_of_one_in_a_pack(tmp_path, monkeypatch):
    menu = Menu()
    monkeypatch.setattr(posteer.sweeps.store, "MOST_LOOSE", 0)
    runs = Runs(menu, tmp_path / "runs")
    run = runs.start(asked_of(menu, ASKED))
    assert run.ended.wait(60) and run.state == "done"
    store = RunStore(tmp_path / "runs")
    (name,) = store.names()
    record = store.read(name)
    (tmp_path / "runs" / "runs" / f"{name}.json").unlink()
    store.commit("batch", [record])
    assert list((tmp_path / "runs" / "packs").iterdir())
    changed = json.loads(json.dumps(record))
    changed["provenance"]["finished"] = "9999-01-01T00:00:00"
    RunStore(tmp_path / "runs").put(changed)
    found, damaged = RunStore(tmp_path / "runs").records()
    assert (found, damaged) == ([changed], {})
