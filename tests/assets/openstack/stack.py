"""Runs an OpenStack on loopback until it is told to end. Usage: run [--identity PORT] [--end-with-stdin]

Four processes of `service.py` share a temporary folder with their databases. They come from a folder in the cache that is
made once: with schemas, users and what `seed.py` says. When all of them answer, one line with the addresses as JSON is
printed.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading

from pathlib import Path

import configuration
import seed

HERE = Path(__file__).parent
# A process has a database of its own, by whose name it goes, and these services of the catalogue.
PROCESSES = {"keystone": ("identity", "placement"), "glance": ("image",), "neutron": ("network",), "nova_cell1": ("compute",)}
# The services in the catalogue of Keystone: their types, and what follows the port in their addresses.
CATALOGUE = {"identity": "/v3", "placement": "", "image": "", "network": "", "compute": "/v2.1"}
# The cell of servers that no host has, as nova names it.
CELL0 = "00000000-0000-0000-0000-000000000000"
# The port of appliances, which drivers know.
APPLIANCE = 5000


def sockets(**ports):
    """A socket for each service, with a port of loopback that is its own from now on: any free one where none is given.

    Who connects before the service accepts waits for it: nova asks Keystone while both start, and gives up if it is refused.
    """
    bound = {kind: socket.socket() for kind in CATALOGUE}
    for kind, service in bound.items():
        if ports.get(kind):
            # Connections of who had it before may linger. A free one would not be free of others with this.
            service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.bind(("127.0.0.1", ports.get(kind) or 0))
        service.listen(128)
    return bound


def own_network():
    """The first three numbers of a network of loopback, for the appliances of this stack alone, and what reserves it."""
    for third in range(256):
        reserved = socket.socket()
        try:
            reserved.bind((f"127.77.{third}.1", APPLIANCE))
            return f"127.77.{third}", reserved
        except OSError:
            reserved.close()
    sys.exit("no network of loopback is free for appliances")


class Stack:
    """The processes in one folder."""

    def __init__(self, folder, sockets):
        self.folder, self.sockets, self.processes = folder, sockets, []
        ports = {kind: service.getsockname()[1] for kind, service in sockets.items()}
        self.addresses = {kind: f"http://127.0.0.1:{ports[kind]}{path}" for kind, path in CATALOGUE.items()}
        (folder / "etc").mkdir(exist_ok=True)
        (folder / "log").mkdir(exist_ok=True)
        configuration.write(folder, self.addresses["identity"], ports["image"])

    def spawn(self, name, *command, **options):
        environment = os.environ | configuration.environment(self.folder, name)
        log = open(self.folder / "log" / f"{name}.out", "ab")
        return subprocess.Popen(command, env=environment, stderr=log, **options)

    def tool(self, database, program, *arguments):
        """Runs a command of OpenStack to its end."""
        program = Path(sys.executable).parent / program
        config = {"nova-manage": "nova", "glance-manage": "glance-api", "placement-manage": "placement"}.get(program.name, "keystone")
        file = str(self.folder / "etc" / f"{config}.conf")
        tool = self.spawn(database, program, "--config-file", file, *arguments, stdout=subprocess.DEVNULL)
        if tool.wait() != 0:
            sys.exit(f"{program.name} {' '.join(arguments)} failed: see {self.folder}/log")

    def begin(self, *names):
        """Starts processes, and waits until they answer. They end with this one: their standard input does."""
        begun = []
        for name in names:
            own = {kind: self.sockets[kind].detach() for kind in PROCESSES[name]}
            inherited = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": own.values()}
            begun.append(self.spawn(name, sys.executable, str(HERE / "service.py"), name, json.dumps(own), **inherited))
            for descriptor in own.values():
                os.close(descriptor)
        self.processes += begun
        for name, process in zip(names, begun):
            if process.stdout.readline() != b"ready\n":
                sys.stderr.write((self.folder / "log" / f"{name}.out").read_text(errors="replace")[-4000:])
                sys.exit(f"{name} ended before it was ready")

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()
        self.processes = []

    def database(self, name):
        return sqlite3.connect(self.folder / "db" / f"{name}.db")

    def move(self, network):
        """Tells the databases, which were made elsewhere, where this stack is."""
        with self.database("keystone") as keystone:
            for kind, address in self.addresses.items():
                of_kind = "SELECT id FROM service WHERE type = ?"
                keystone.execute(f"UPDATE endpoint SET url = ? WHERE service_id IN ({of_kind})", (address, kind))
        with self.database("nova_api") as nova:
            of_cell = "UPDATE cell_mappings SET database_connection = ? WHERE uuid"
            nova.execute(f"{of_cell} = ?", (configuration.database(self.folder, "nova_cell0"), CELL0))
            nova.execute(f"{of_cell} != ?", (configuration.database(self.folder, "nova_cell1"), CELL0))
        with self.database("nova_cell1") as nova:
            # The first sign of life comes after five seconds. Until then nova would find no host for a server.
            nova.execute("UPDATE services SET last_seen_up = datetime('now', '+5 seconds')")
        with self.database("neutron") as neutron:
            begins = seed.MANAGEMENT_NETWORK
            neutron.execute("UPDATE subnets SET cidr = replace(cidr, ?, ?)", (begins, network))
            for table in ("ipallocationpools", "ipamallocationpools"):
                neutron.execute(f"UPDATE {table} SET first_ip = replace(first_ip, ?, ?), last_ip = replace(last_ip, ?, ?)", (begins, network) * 2)


def set_up(stack):
    """Makes the databases of a new OpenStack."""
    for folder in ("db", "state/images", "state/staging", "state/tasks"):
        (stack.folder / folder).mkdir(parents=True)
    for keys in ("fernet", "credential"):
        (stack.folder / "state" / keys).mkdir(mode=0o700)
    whose = ("--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid()))
    identity = stack.addresses["identity"]
    urls = [word for kind in ("public", "internal", "admin") for word in (f"--bootstrap-{kind}-url", identity)]
    stack.tool("keystone", "keystone-manage", "db_sync")
    for keys in ("fernet_setup", "credential_setup"):
        stack.tool("keystone", "keystone-manage", keys, *whose)
    stack.tool("keystone", "keystone-manage", "bootstrap", "--bootstrap-password", seed.PASSWORD, "--bootstrap-region-id", seed.REGION, *urls)
    stack.tool("keystone", "placement-manage", "db", "sync")
    stack.tool("glance", "glance-manage", "db_sync")
    schema = stack.spawn("neutron", sys.executable, str(HERE / "service.py"), "neutron_schema", "{}")
    if schema.wait() != 0:
        sys.exit("the schema of neutron cannot be made")
    cells = [configuration.database(stack.folder, f"nova_cell{number}") for number in (0, 1)]
    stack.tool("nova_cell1", "nova-manage", "api_db", "sync")
    stack.tool("nova_cell1", "nova-manage", "cell_v2", "map_cell0", "--database_connection", cells[0])
    stack.tool("nova_cell1", "nova-manage", "db", "sync")
    stack.tool("nova_cell1", "nova-manage", "cell_v2", "create_cell", "--name", "cell1", "--transport-url", "fake://", "--database_connection", cells[1])
    stack.begin("keystone")
    seed.catalogue(stack.addresses)
    stack.begin(*list(PROCESSES)[1:])
    stack.tool("nova_cell1", "nova-manage", "cell_v2", "discover_hosts")
    seed.contents(stack.addresses)
    stack.end()
    shutil.rmtree(stack.folder / "log")


def fresh(cache):
    """The folder of a new OpenStack, made where the cache has none by these files."""
    files = sorted(HERE.glob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    made = cache / f"fresh-{digest}"
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for old in cache.glob("fresh-*"):
                shutil.rmtree(old)
            making = cache / "making"
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            set_up(Stack(making, sockets()))
            making.rename(made)
    return made


def main():
    arguments = argparse.ArgumentParser(prog="run", description="Runs an OpenStack on loopback.")
    arguments.add_argument("--cache", required=True, type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--identity", type=int, metavar="PORT", help="the port of Keystone (default: a free one)")
    arguments.add_argument("--end-with-stdin", action="store_true", help="end when the standard input does")
    arguments = arguments.parse_args()
    network, reserved = own_network()
    services = sockets(identity=arguments.identity)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    made = fresh(arguments.cache)
    with tempfile.TemporaryDirectory(prefix="openstack-") as folder, reserved:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        stack = Stack(Path(folder), services)
        stack.move(network)
        try:
            stack.begin(*PROCESSES)
            print(json.dumps(stack.addresses | {"appliances": f"{network}.0/24", "folder": folder}), flush=True)
            sys.stdin.read() if arguments.end_with_stdin else threading.Event().wait()
        except KeyboardInterrupt:
            pass
        finally:
            stack.end()


main()
