"""The REST API of akanda's appliance, the router in a VM:

    GET /v1/system/interfaces    interfaces[]: ifname, lladdr, addresses, state, rx_bytes, tx_bytes
    GET /v1/system/config        configuration: the last one that was taken
    PUT /v1/system/config        takes ports[] with their addresses, routes[], services{}; 422 with a message otherwise
"""

import http.server
import ipaddress
import json
import threading

PORT = 5000
# What a configuration may have, and what kind of value.
FIELDS = {"ports": list, "routes": list, "services": dict}


class Appliance:
    """An appliance, which answers at those of its addresses that are of loopback."""

    def __init__(self, interfaces):
        self.interfaces = list(interfaces)
        self.configuration = {}
        self.traffic = 0
        self.lock = threading.Lock()
        self.servers = []
        for interface in self.interfaces:
            self.listen(interface)

    def listen(self, interface):
        for address in interface["addresses"]:
            if not ipaddress.ip_address(address).is_loopback:
                continue
            server = http.server.ThreadingHTTPServer((address, PORT), handler(self))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(server)

    def end(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def plug(self, interface):
        with self.lock:
            self.interfaces.append(interface)

    def unplug(self, mac):
        with self.lock:
            self.interfaces = [interface for interface in self.interfaces if interface["lladdr"] != mac]

    def shown(self):
        """The interfaces. Each look finds more traffic."""
        with self.lock:
            self.traffic += 64
            return [
                {"ifname": f"ge{number}", "state": "up", "rx_bytes": self.traffic, "tx_bytes": self.traffic // 2} | interface
                for number, interface in enumerate(self.interfaces)
            ]

    def problem(self, configuration):
        """Why a configuration is refused, or None."""
        if not isinstance(configuration, dict):
            return "it is no object"
        for field, value in configuration.items():
            if not isinstance(value, FIELDS.get(field, ())):
                return f"{field} is not understood"
        known = {interface["lladdr"] for interface in self.interfaces}
        for port in configuration.get("ports", []):
            if port.get("mac") not in known:
                return f"there is no interface {port.get('mac')}"
            for address in port.get("addresses", []):
                ipaddress.ip_interface(address)
        for route in configuration.get("routes", []):
            ipaddress.ip_network(route["destination"])
            ipaddress.ip_address(route["via"])
        return None

    def configure(self, configuration):
        with self.lock:
            try:
                problem = self.problem(configuration)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                problem = str(error)
            if problem is None:
                self.configuration = configuration
            return problem


def handler(appliance):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, value):
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/v1/system/interfaces":
                return self.answer(200, {"interfaces": appliance.shown()})
            if self.path == "/v1/system/config":
                return self.answer(200, {"configuration": appliance.configuration})
            return self.answer(404, {"message": f"there is no {self.path}"})

        def do_PUT(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path != "/v1/system/config":
                return self.answer(404, {"message": f"there is no {self.path}"})
            try:
                configuration = json.loads(body)
            except ValueError:
                return self.answer(400, {"message": "the body is no JSON"})
            problem = appliance.configure(configuration)
            if problem is not None:
                return self.answer(422, {"message": problem})
            return self.answer(200, {"configuration": configuration})

        def log_message(self, *_):
            pass

    return Handler
