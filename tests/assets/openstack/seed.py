"""What a new OpenStack of the tests has: the users `admin` and `demo`, and in the project `demo` the networks, ports,
images and flavor of `examples/openstack-routers`."""

import json
import urllib.request

PASSWORD = "trombone-on-tuesday"
REGION = "R1"
# How the addresses on the management network begin, until a stack takes a network of its own.
MANAGEMENT_NETWORK = "127.77.255"


def uuid(number):
    return f"70617274-0000-4000-8000-{number:012}"


MANAGEMENT, OFFICE, GUESTS = uuid(1), uuid(2), uuid(3)
NETWORKS = {
    MANAGEMENT: ("management", f"{MANAGEMENT_NETWORK}.0/24"),
    OFFICE: ("office", "10.1.0.0/24"),
    GUESTS: ("guests", "10.2.0.0/24"),
}
IMAGES = {uuid(11): "router-2026-01", uuid(12): "router-2026-02"}
TENANT = "team-a"
# Ports by MAC address: the network, and the router for which they are.
PORTS = {
    "fa:16:3e:00:00:01": (OFFICE, "edge"),
    "fa:16:3e:00:00:02": (GUESTS, "edge"),
    "fa:16:3e:00:00:03": (OFFICE, "branch"),
    "fa:16:3e:00:00:04": (GUESTS, "branch"),
}


class Caller:
    """A user of a project."""

    def __init__(self, identity, name):
        domain = {"id": "default"}
        user = {"name": name, "password": PASSWORD, "domain": domain}
        login = {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": {"name": name, "domain": domain}}}
        request = urllib.request.Request(f"{identity}/auth/tokens", json.dumps({"auth": login}).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            self.token = answer.headers["x-subject-token"]
            self.said = json.load(answer)["token"]

    def send(self, method, url, body=None, kind="application/json"):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"x-auth-token": self.token, "content-type": kind}
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def catalogue(addresses):
    """Tells Keystone of the services and of the project `demo`."""
    identity = addresses["identity"]
    admin = Caller(identity, "admin")
    for kind, url in addresses.items():
        if kind == "identity":
            continue
        service = admin.send("POST", f"{identity}/services", {"service": {"name": kind, "type": kind}})["service"]["id"]
        for interface in ("public", "internal", "admin"):
            endpoint = {"service_id": service, "interface": interface, "url": url, "region_id": REGION}
            admin.send("POST", f"{identity}/endpoints", {"endpoint": endpoint})
    made = lambda kind, value: admin.send("POST", f"{identity}/{kind}s", {kind: value})[kind]["id"]
    project = made("project", {"name": "demo", "domain_id": "default"})
    user = made("user", {"name": "demo", "password": PASSWORD, "domain_id": "default"})
    roles = {role["name"]: role["id"] for role in admin.send("GET", f"{identity}/roles")["roles"]}
    grant = lambda project, user, role: admin.send("PUT", f"{identity}/projects/{project}/users/{user}/roles/{roles[role]}")
    grant(project, user, "member")
    # Services show tokens of their own beside those of users, and these need the role.
    grant(admin.said["project"]["id"], admin.said["user"]["id"], "service")


def contents(addresses):
    """Makes what the project `demo` has."""
    admin, demo = (Caller(addresses["identity"], name) for name in ("admin", "demo"))
    neutron, glance = f"{addresses['network']}/v2.0", f"{addresses['image']}/v2"
    flavor = {"id": "router-small", "name": "router-small", "ram": 512, "vcpus": 1, "disk": 1}
    admin.send("POST", f"{addresses['compute']}/flavors", {"flavor": flavor})
    for id, name in IMAGES.items():
        image = {"id": id, "name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"}
        admin.send("POST", f"{glance}/images", image)
        admin.send("PUT", f"{glance}/images/{id}/file", b"an appliance", "application/octet-stream")
    for id, (name, cidr) in NETWORKS.items():
        demo.send("POST", f"{neutron}/networks", {"network": {"id": id, "name": name}})
        # Neutron refuses DHCP on networks of loopback, where no gateway is either.
        subnet = {"network_id": id, "ip_version": 4, "cidr": cidr, "enable_dhcp": False, "gateway_ip": None}
        begins = cidr.rpartition(".")[0]
        pool = {"start": f"{begins}.10", "end": f"{begins}.250"}
        demo.send("POST", f"{neutron}/subnets", {"subnet": subnet | {"allocation_pools": [pool]}})
    for mac, (network, router) in PORTS.items():
        port = demo.send("POST", f"{neutron}/ports", {"port": {"network_id": network, "mac_address": mac}})["port"]["id"]
        tags = [f"polity-tenant:{TENANT}", f"polity-router:{router}"]
        demo.send("PUT", f"{neutron}/ports/{port}/tags", {"tags": tags})
