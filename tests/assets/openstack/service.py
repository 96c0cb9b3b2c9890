"""One process of OpenStack, until its standard input ends. Usage: service.py NAME SOCKETS

The sockets of its services are inherited: a JSON object of their descriptors.

Nothing of the services' API is changed but that a network may be made with an id. What is adapted is what stands below
them: locks of sqlite, the plugging of ports, and the hypervisor.
"""

import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback

# The applications of a process, by the service that they are in the catalogue.
APPLICATIONS = {
    "keystone": {"identity": "keystone.wsgi.api", "placement": "placement.wsgi.api"},
    "glance": {"image": "glance.wsgi.api"},
    "neutron": {"network": "neutron.wsgi.api"},
    "nova_cell1": {"compute": "nova.wsgi.osapi_compute"},
}
PRAGMAS = ("busy_timeout = 60000", "journal_mode = WAL", "synchronous = OFF")


def let_writers_wait():
    """A transaction of sqlite that reads and then writes fails at once if another one writes: it waits only at its
    beginning. So who will write says so there."""
    from oslo_db.sqlalchemy import enginefacade
    from sqlalchemy import engine, event, orm

    factory = enginefacade._TransactionFactory
    create_session = factory._create_session

    def create(self, mode, bind=None):
        session = create_session(self, mode, bind=bind)
        session.info["writes"] = mode is enginefacade._WRITER
        return session

    factory._create_session = create

    @event.listens_for(orm.Session, "after_begin")
    def after_begin(session, transaction, connection):
        if session.info.get("writes") and not transaction.nested:
            connection.exec_driver_sql("ROLLBACK")
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    @event.listens_for(engine.Engine, "connect")
    def connect(connection, _record):
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")


def neutron_schema():
    """Neutron's migrations change constraints, which sqlite cannot. The schema that they lead to can be made."""
    import sqlalchemy
    from neutron.db.migration.models import head

    head.get_metadata().create_all(sqlalchemy.create_engine(os.environ["OS_DATABASE__CONNECTION"]))


def before_neutron():
    """Ports are plugged at once, without an agent. Networks may have ids that a manifest can name beforehand."""
    from neutron.tests.unit.plugins.ml2.drivers import mechanism_logger
    from neutron_lib.api.definitions import network

    def bind_port(_driver, context):
        segment = context.segments_to_bind[0]["id"]
        context.set_binding(segment, "ovs", {"port_filter": True}, status="ACTIVE")

    mechanism_logger.LoggerMechanismDriver.bind_port = bind_port
    of_id = network.RESOURCE_ATTRIBUTE_MAP[network.COLLECTION_NAME]["id"]
    of_id.update(allow_post=True, default=None, validate={"type:uuid_or_none": None})


def after_neutron():
    """Neutron reads its policy with the first request. Another one meanwhile would find no policy, and be answered with
    an empty list."""
    from neutron import policy

    policy.init()


def after_nova():
    """Conductor, scheduler and compute, beside the API."""
    import hypervisor
    import os_vif
    from nova import service

    hypervisor.install()
    os_vif.initialize()
    for topic in ("conductor", "scheduler", "compute"):
        other = "compute-alt" if topic == "compute" else None
        service.Service.create(binary=f"nova-{topic}", topic=topic, topic_alt=other).start()


AFTER = {"neutron": after_neutron, "nova_cell1": after_nova}


def serve(name, sockets):
    import waitress

    let_writers_wait()
    if name == "neutron":
        before_neutron()
    for service, module in APPLICATIONS[name].items():
        application = importlib.import_module(module).application
        if name in AFTER:
            AFTER[name]()
        inherited = socket.socket(fileno=sockets[service])
        server = waitress.create_server(application, sockets=[inherited], threads=8)
        threading.Thread(target=server.run, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def main():
    _, name, sockets = sys.argv
    # The applications read the arguments, too. Interrupts are for who started this process.
    sys.argv = sys.argv[:1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        neutron_schema() if name == "neutron_schema" else serve(name, json.loads(sockets))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # Without waiting for the threads of services.
    os._exit(0)


main()
