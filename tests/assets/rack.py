"""A rack of machines with a JSON service: the appliance of the guide "Writing a driver".

    rack.py PORT [--lose-answers N]

It listens on 127.0.0.1 (0: any free port) and prints a line for each request. With --lose-answers it makes the first N
machines, and closes the connection in place of an answer.

    POST   /v1/machines                     makes a machine: {"name", "size", "labels", "boot"}
    GET    /v1/machines?label=NAME%3DVALUE  lists the machines that have this label: {"machines": […]}
    GET    /v1/machines/ID                  shows one
    DELETE /v1/machines/ID                  removes one, at once
"""

import argparse
import base64
import itertools
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qsl, urlsplit

TOKEN = "rack-t0ken-of-the-guide"
SIZES = ("small", "large")
ROOM = 8


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": code, "message": message}}


class Rack:
    """The machines, in memory. A name may stand any number of times."""

    def __init__(self):
        self.lock = Lock()
        self.machines = {}
        self.numbers = itertools.count(1)

    def make(self, wanted):
        if not wanted.get("name") or wanted.get("size") not in SIZES:
            raise Refused(400, "invalid", f"a machine needs a name, and one of the sizes {SIZES}")
        try:
            base64.b64decode(wanted.get("boot") or "", validate=True)
        except ValueError as error:
            raise Refused(400, "invalid", f"boot: {error}") from error
        with self.lock:
            if len(self.machines) >= ROOM:
                raise Refused(409, "no-room", f"there are {ROOM} machines already")
            machine = {
                "id": f"m-{next(self.numbers)}",
                "name": wanted["name"],
                "size": wanted["size"],
                "state": "running",
                "labels": wanted.get("labels", {}),
                # As many a real service does: what a machine boots with is shown to whoever lists it.
                "boot": wanted.get("boot"),
            }
            self.machines[machine["id"]] = machine
            return machine

    def labelled(self, labels):
        with self.lock:
            return [m for m in self.machines.values() if labels.items() <= m["labels"].items()]

    def one(self, number, remove=False):
        with self.lock:
            found = self.machines.pop(number, None) if remove else self.machines.get(number)
        if found is None:
            raise Refused(404, "no-machine", f"there is no machine {number}")
        return found


class Service(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        sent = self.rfile.read(length)
        try:
            status, body = self.route(sent)
        except Refused as refused:
            status, body = refused.status, refused.body
        is_lost = self.command == "POST" and status == 201 and next(self.server.to_lose, None) is not None
        what = body.get("id", "") if body else ""
        print(self.command, urlsplit(self.path).path, "lost" if is_lost else status, what, flush=True)
        if is_lost:
            self.close_connection = True
            return
        text = json.dumps(body).encode() if body else b""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = answer

    def route(self, sent):
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "who-are-you", "the token is wrong")
        url = urlsplit(self.path)
        match self.command, url.path.strip("/").split("/"):
            case "POST", ["v1", "machines"]:
                return 201, self.server.rack.make(json.loads(sent))
            case "GET", ["v1", "machines"]:
                labels = [value.partition("=") for name, value in parse_qsl(url.query) if name == "label"]
                return 200, {"machines": self.server.rack.labelled({name: value for name, _, value in labels})}
            case "GET", ["v1", "machines", number]:
                return 200, self.server.rack.one(number)
            case "DELETE", ["v1", "machines", number]:
                self.server.rack.one(number, remove=True)
                return 204, None
        raise Refused(404, "no-path", "this service has no such path")

    def log_message(self, *_):
        """`answer` prints what counts."""


def main():
    arguments = argparse.ArgumentParser(description="A rack of machines with a JSON service.")
    arguments.add_argument("port", type=int)
    arguments.add_argument("--lose-answers", type=int, default=0, metavar="N")
    given = arguments.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Service)
    server.rack = Rack()
    server.to_lose = iter(range(given.lose_answers))
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
