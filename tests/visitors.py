"""Somebody who asks a server on this machine for something, politely or not."""

import http.client
import json


class Visitor:
    """Requests with any headers; those of a page that was let in unless others are given."""

    def __init__(self, serving):
        self.port, self.token = serving.port, serving.guard.token
        self.host = f"127.0.0.1:{self.port}"
        self.cookie = ""

    def enter(self):
        answer = self.ask("GET", f"/?token={self.token}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def own(self, method):
        mine = {"Host": self.host, "Cookie": self.cookie}
        posts = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        return mine | posts if method == "POST" else mine

    def ask(self, method, path, body=None, **headers):
        """The answer, read to its end; a header that is None is left out."""
        wanted = self.own(method) | {k.replace("_", "-"): v for k, v in headers.items()}
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        for name, value in wanted.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    line.putheader(name, one)
        line.putheader("Content-Length", str(len(data)))
        line.endheaders(data)
        answer = line.getresponse()
        answer.text = answer.read().decode()
        line.close()
        return answer

    def get(self, path):
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def post(self, path, **data):
        answer = self.ask("POST", path, data)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def messages(self, run):
        """All that a run tells, until it has ended."""
        text = self.ask("GET", f"/api/runs/{run['id']}/messages").text
        return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part]
