"""The explorer's server: who is let in, what may be asked, what a run tells and leaves behind."""

import asyncio
import json
import sys
import threading
from itertools import product

import pytest

pytest.importorskip("uvicorn", reason="starlette and uvicorn are not installed")
from serving import served
from visitors import Visitor

from posteer import elicit
from posteer.cli import main
from posteer.evaluation import expected_utility
from posteer.explorer.asked import asked_of, utility_of
from posteer.explorer.guard import LARGEST_BODY, Guard
from posteer.explorer.runs import Run
from posteer.sweeps.results import read_sweep
from posteer.sweeps.store import RunStore
from posteer.views.pages.report import write_report

EVIL = '"><img src=x onerror="window.hacked = 1">'
CELL = {"model": "exact:urn", "utility": {"kind": "dyck"}, "horizon": 4}
ASKED = {**CELL, "length": 6, "method": "coordinate", "seed": 0, "beside": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served") / "runs", at_once=2) as serving:
        yield serving


@pytest.fixture(scope="module")
def visitor(server):
    return Visitor(server).enter()


def test_the_first_address_gives_a_cookie_that_scripts_and_other_sites_do_not_have(server):
    answer = Visitor(server).ask("GET", f"/?token={server.guard.token}")
    assert answer.status == 200 and 'content="0; url=/"' in answer.text
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept and "SameSite=Strict" in kept
    assert server.guard.token not in kept
    assert server.address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/assets/explorer.js", "/api/menu", "/report", "/api/runs"])
def test_nothing_is_told_without_the_token(server, path):
    stranger = Visitor(server)
    assert stranger.ask("GET", path, Cookie=None).status == 401
    assert stranger.ask("GET", path, Cookie=f"{server.guard.cookie}=guess").status == 401
    assert stranger.ask("GET", path, Cookie="\x01=;;=").status == 401
    wrong = stranger.ask("GET", f"{path}?token={server.guard.token[:-1]}")
    assert wrong.status == 401 and "set-cookie" not in wrong.headers


def test_cookies_of_other_servers_do_not_matter(visitor):
    others = '_xsrf=2|a|b; {"a": 1}; x={"b"; =; [c]=d'
    for cookie in (f"{others}; {visitor.cookie}", f"{visitor.cookie};{others}"):
        assert visitor.ask("GET", "/api/menu", Cookie=cookie).status == 200
    assert visitor.ask("GET", "/api/menu", Cookie=f"x{visitor.cookie}").status == 401


HOSTS = ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}",
         "", "192.168.0.7:{port}", "[::2]:{port}"]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_foreign_host_is_refused_even_with_the_cookie(visitor, host):
    given = host.format(port=visitor.port)
    assert visitor.ask("GET", "/api/menu", Host=given).status == 421
    assert visitor.ask("POST", "/api/runs", ASKED, Host=given).status == 421


def test_no_host_or_two_are_refused(visitor):
    assert visitor.ask("GET", "/api/menu", Host=None).status in (400, 421)
    assert visitor.ask("GET", "/api/menu", Host=[visitor.host, "evil"]).status in (400, 421)
    assert visitor.ask("GET", "/api/menu", Host=f"localhost:{visitor.port}").status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", None])
def test_a_foreign_origin_is_refused(visitor, origin):
    before = len(visitor.get("/api/runs")["runs"])
    assert visitor.ask("POST", "/api/runs", ASKED, Origin=origin).status == 403
    if origin is not None:
        assert visitor.ask("GET", "/api/menu", Origin=origin).status == 403
    site = visitor.ask("GET", "/api/menu", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")
    assert site.status == 403
    assert len(visitor.get("/api/runs")["runs"]) == before


def test_bodies_that_are_no_json_or_too_large_are_refused(visitor):
    form = "application/x-www-form-urlencoded"
    assert visitor.ask("POST", "/api/runs", ASKED, Content_Type=form).status == 415
    assert visitor.ask("POST", "/api/runs", b"{").status == 400
    assert visitor.ask("POST", "/api/runs", b"[" * 10_000).status == 400
    large = b'{"model": "' + b"a" * (2 * LARGEST_BODY) + b'"}'
    assert visitor.ask("POST", "/api/runs", large).status == 413
    assert visitor.ask("DELETE", "/api/runs", Origin=f"http://{visitor.host}").status == 415


PATHS = ["/assets/../server.py", "/assets/%2e%2e/report.py", "/assets/..%2f..%2freport.py",
         "/assets//etc/passwd", "/assets/%2Fetc%2Fpasswd", "/assets/..%5Cbundle.py", "/assets/",
         "/api/runs/../../../etc/passwd/messages", "/api/runs/%2e%2e%2fsweep/messages",
         "/api/runs/%2Fetc%2Fpasswd/messages", "//etc/passwd", "/..", "/api/runs/%00/messages",
         "/runs/explorer/sweep.json"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_tricks_with_paths_find_nothing(visitor, path):
    answer = visitor.ask("GET", path)
    assert answer.status in (400, 404)
    assert "root:" not in answer.text and "def " not in answer.text


def test_a_page_opens_no_path_and_no_python_file(visitor, tmp_path):
    marker, code = tmp_path / "ran", tmp_path / "code.py"
    code.write_text(f"open({str(marker)!r}, 'w')\ndef f(y):\n    return 0.0\n")
    names = [f"{code}:f", str(tmp_path), "../" * 9 + "etc", "hf:" + str(tmp_path), "exact:hmm(/x)",
             "named-1", EVIL, "", "urn/../urn"]  # fmt: skip
    for name in names:
        answer = visitor.ask("POST", "/api/runs", {**ASKED, "model": name})
        assert (answer.status, "not on the menu" in answer.text) == (400, True)
        assert visitor.ask("GET", f"/api/model?id={name.encode().hex()}").status == 400
    hostile = {
        "utility": [f"{code}:f", {"kind": f"{code}:f"}, {"kind": "dyck", "more": 1}, None, EVIL,
                    {"kind": "target", "rows": [[EVIL]]}, {"kind": "target", "rows": [[1e999, 0]]},
                    {"kind": "frequency", "target": "0.1", "token": 1},
                    {"kind": "target", "rows": [[0, 0]]}],
        "method": [f"{code}:f", "ppt(device=cuda)", EVIL, 3, None],
        "length": [0, 10**9, "6", 2.5, True, None], "horizon": [0, 10**9, EVIL],
        "seed": [2**70, "x"], "beside": [1],
    }  # fmt: skip
    for name, values in hostile.items():
        for value in values:
            answer = visitor.ask("POST", "/api/runs", {**ASKED, name: value})
            assert answer.status == 400, (name, value, answer.text)
            assert answer.headers["content-type"] == "application/json"
    assert visitor.ask("POST", "/api/runs", {**ASKED, "bank": str(code)}).status == 400
    for prompt in ([], [2] * 6, ["0"], "010101", [0] * 10_000, [-1]):
        assert visitor.ask("POST", "/api/steer", {**CELL, "prompt": prompt}).status == 400
    assert not marker.exists()


def test_answers_say_what_a_browser_may_do_with_them(visitor):
    for path in ("/", "/api/menu", "/assets/explorer.js", "/nowhere"):
        answer = visitor.ask("GET", path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert "http" not in visitor.ask("GET", "/").text


def test_a_run_tells_its_steps_and_is_kept_like_any_other(server, visitor, tmp_path):
    model = "exact:coins(0.2,0.5,0.8)"
    asked = {**ASKED, "model": model, "method": "ppt-rb-analytic", "beside": True}
    told = visitor.messages(visitor.post("/api/runs", **asked))
    kinds = [message["type"] for message in told]
    assert kinds[0] == "latents" and kinds[-1] == "end" and told[-1]["state"] == "done"
    steps = [message for message in told if message["type"] == "ascent"]
    result = next(message for message in told if message["type"] == "result")
    assert [one["step"] for one in steps[:30]] == list(range(1, 31))
    assert steps[-1]["step"] == result["steps"], "the last step is shown"
    assert len(steps) < result["steps"]
    same = elicit(model, "dyck", length=6, method="ppt-rb-analytic")
    assert result["prompt"] == same.prompt
    assert result["expected_utility"] == pytest.approx(same.expected_utility)
    beside = {one["method"]: one["expected_utility"] for one in told if one["type"] == "beside"}
    assert beside.keys() == {"coordinate"}, "no gradients; the paper's method is itself"
    folder = server.runs.folder
    kept = {r["method"]: r for r in read_sweep(folder).rows if r["model"] == model}
    assert kept.keys() == {"ppt-rb-analytic", "coordinate"}
    assert kept["coordinate"]["expected_utility"] == beside["coordinate"]
    assert kept["ppt-rb-analytic"]["run"] == result["run"]
    assert write_report(folder, tmp_path / "report.html", {"model": [model]})["runs"] == 2
    report = visitor.ask("GET", "/report")
    assert report.status == 200 and "script-src 'sha256-" in report.text
    again = visitor.messages(visitor.post("/api/runs", **asked))
    assert [one for one in again if one["type"] == "beside"] == [
        one for one in told if one["type"] == "beside"
    ], "taken from the store"
    assert len([r for r in read_sweep(folder).rows if r["model"] == model]) == 2


async def all_of(run):
    return [json.loads(message)["type"] async for message in run.follow()]


def test_messages_are_told_as_they_come_to_all_who_listen(server):
    """A second one is sent only when the first has been heard, the end when the second has."""
    run, heard = Run(asked_of(server.runs.menu, ASKED)), []

    async def listen():
        async for message in run.follow():
            heard.append(json.loads(message)["type"])
            later = {
                "first": lambda: run.send({"type": "second"}),
                "second": lambda: run.end("done"),
            }
            threading.Thread(target=later.get(heard[-1], lambda: None)).start()

    run.send({"type": "first"})
    asyncio.run(listen())
    assert heard == ["first", "second", "end"]
    assert asyncio.run(all_of(run)) == heard, "one who comes late hears it all"


def test_a_flood_of_runs_is_refused_and_the_server_stays_up(server, visitor):
    with server.runs.hand:  # runs wait for it: those that are let in stay at work
        answers = [visitor.ask("POST", "/api/runs", {**ASKED, "seed": n}) for n in range(40)]
        assert sorted({answer.status for answer in answers}) == [200, 429]
        assert [answer.status for answer in answers].count(200) == server.runs.at_once == 2
        assert visitor.get("/api/menu")["at_once"] == 2
    for run in list(server.runs.known.values()):
        assert run.ended.wait(60)
    last = visitor.messages(visitor.post("/api/runs", **ASKED))[-1]
    assert last == {"type": "end", "state": "done", "error": None}


def test_a_run_that_is_stopped_leaves_nothing(server, visitor):
    before = RunStore(server.runs.folder).names()
    with server.runs.hand:
        run = visitor.post("/api/runs", **{**ASKED, "seed": 77, "beside": True})
        assert visitor.ask("POST", "/api/runs/0123456789abcdef/stop", {}).status == 404
        visitor.post(f"/api/runs/{run['id']}/stop")
    assert visitor.messages(run)[-1] == {"type": "end", "state": "stopped"}
    assert RunStore(server.runs.folder).names() == before


def test_a_run_that_fails_says_why_and_the_server_stays_up(server, visitor):
    asked = {**ASKED, "model": "exact:mess3", "method": "classes"}
    end = visitor.messages(visitor.post("/api/runs", **asked))[-1]
    assert end["state"] == "failed" and "classes" in end["error"]
    refused = visitor.messages(visitor.post("/api/runs", **{**ASKED, "method": "gcg", "length": 1}))
    assert refused[-1]["state"] == "failed" and "length 1" in refused[-1]["error"]
    assert visitor.get("/api/menu")["at_once"] == 2


@pytest.mark.parametrize("prompt", [[0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]])
def test_a_prompt_is_judged_by_hand(visitor, prompt):
    """J, the tree and the rank, against an enumeration of all prompts by other code."""
    field = visitor.post("/api/field", **CELL, length=6)
    told = visitor.post("/api/steer", **CELL, prompt=prompt)
    every = expected_utility("exact:urn", "dyck", [list(y) for y in product((0, 1), repeat=6)], 4)
    values = every.expected_utility.tolist()
    own = values[int("".join(map(str, prompt)), 2)]
    assert told["J"] == pytest.approx(own, rel=1e-6)
    assert told["rank"] == 1 + sum(value > own + 1e-9 for value in values)
    assert (told["prompts"], field["prompts"]) == (64, 64)
    assert field["optimum"] == pytest.approx(max(values), rel=1e-6)
    assert [len(level) for level in told["tree"]] == [2, 4, 8, 16]
    for level in told["tree"]:
        assert sum(level) == pytest.approx(1, abs=1e-5)
    mean = sum(p * u for p, u in zip(told["tree"][-1], told["utilities"], strict=True))
    assert mean == pytest.approx(own, abs=1e-5)


def test_a_kernel_of_prompts_tilts_the_latents(visitor):
    asked = {**CELL, "length": 6}
    flat = visitor.post("/api/tilt", **asked, kernel=[[0.5, 0.5], [0.5, 0.5]])
    turns = visitor.post("/api/tilt", **asked, kernel=[[0.0, 1.0], [1.0, 0.0]])
    assert flat["ess"] == pytest.approx(1.0), "every latent makes all prompts alike likely"
    assert turns["ess"] < 0.5 and turns["surrogate"] > flat["surrogate"]
    assert visitor.ask("POST", "/api/tilt", {**asked, "kernel": [[2, 0]]}).status == 400


def test_atoms_are_weighed_by_name(visitor):
    asked = {**CELL, "model": "exact:coins(0.2,0.5,0.8)"}
    facts = visitor.ask("GET", "/api/model?id=exact:coins(0.2,0.5,0.8)")
    assert facts.status == 200
    told = visitor.post("/api/steer", **asked, prompt=[1, 1, 1])
    joint = [p**3 for p in (0.2, 0.5, 0.8)]
    assert told["atoms"] == pytest.approx([one / sum(joint) for one in joint], rel=1e-5)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"kind": "target", "rows": [[0.9, 0.1]]}, "reverse-xent(tau-0.1)"),
        ({"kind": "target", "rows": [[0, 1], [1, 0]]}, "reverse-xent(sym-0.0)"),
        ({"kind": "target", "rows": [[0, 1], [0.5, 0.5]]}, "reverse-xent([[0.0,1.0],[0.5,0.5]])"),
        ({"kind": "frequency", "target": 0.3, "token": 1}, "frequency(0.3)"),
        ({"kind": "frequency", "target": 1, "token": 0}, "frequency(1.0,token=0)"),
    ],
)  # fmt: skip
def test_utilities_are_named_here(given, name):
    assert utility_of(given, 2) == name


def test_laws_that_round_badly_still_sum_to_one():
    third = utility_of({"kind": "target", "rows": [[1 / 3, 1 / 3, 1 / 3]] * 3}, 3)
    assert (
        third
        == "reverse-xent([[0.3334,0.3333,0.3333],[0.3334,0.3333,0.3333],[0.3334,0.3333,0.3333]])"
    )


def test_only_addresses_in_numbers_are_others_names():
    open_to_all = Guard(nobody, frozenset({"localhost"}), 80, anywhere=True)
    lines = [(b"host", b"192.168.0.7:80")], [(b"host", b"evil.example:80")]
    scopes = [{"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": own}
              for own in lines]  # fmt: skip
    assert [status_of(open_to_all, scope) for scope in scopes] == [401, 421]


@pytest.mark.parametrize(
    ("port", "host", "status"),
    [
        (80, "localhost", 401),  # a browser leaves the usual port out
        (80, "localhost:80", 401),
        (80, "[::1]", 401),
        (80, "[::1]:80", 401),
        (80, "evil.example", 421),
        (80, "localhost:81", 421),
        (80, "localhost:", 421),
        (80, "[localhost", 421),
        (81, "localhost", 421),
        (81, "[::1]", 421),
        (81, "[::1]:81", 401),
    ],
)
def test_the_usual_port_need_not_be_said(port, host, status):
    guard = Guard(nobody, frozenset({"localhost", "::1"}), port)
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    assert status_of(guard, {**scope, "headers": [(b"host", host.encode())]}) == status


async def nobody(*_given):
    raise AssertionError("asked without a cookie")


def status_of(app, scope):
    """The status of an answer to a request without a body."""
    said = []

    async def send(message):
        said.append(message)

    asking = app(scope, nobody, send)
    with pytest.raises(StopIteration):
        asking.send(None)
    return said[0]["status"]


def refused(capsys, *line):
    with pytest.raises(SystemExit) as ended:
        main(["explore", "--no-browser", *line])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("\n") == 1
    return told


def test_the_command_refuses_in_one_line(capsys, tmp_path, monkeypatch):
    code = tmp_path / "model.py"
    code.write_text("raise SystemExit('run')\n")
    kept = ["--runs", str(tmp_path / "kept")]
    assert "runs no Python file" in refused(capsys, *kept, "--model", f"{code}:model")
    assert "unknown model" in refused(capsys, *kept, "--model", EVIL)
    assert "no sweep" in refused(capsys, "--runs", str(tmp_path))
    assert "port" in refused(capsys, *kept, "--port", "70000")
    assert "at most 4" in refused(capsys, *kept, "--at-once", "5")
    assert "host" in refused(capsys, *kept, "--host", "no such host")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "posteer.explorer.server", raising=False)
    assert "pip install 'posteer[explore]'" in refused(capsys, *kept)
