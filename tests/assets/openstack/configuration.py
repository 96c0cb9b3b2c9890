"""The configuration of all services: one text, of which each reads what it knows."""

import sys

import seed

SERVICES = ("keystone", "placement", "glance-api", "neutron", "nova")


def database(folder, name):
    return f"sqlite:///{folder}/db/{name}.db"


def write(folder, identity, image_port):
    """Writes the files of the services. Where their packages keep more of it, that is named."""
    packages = f"{sys.prefix}/etc"
    login = f"""
auth_type = password
auth_url = {identity}
username = admin
password = {seed.PASSWORD}
project_name = admin
user_domain_id = default
project_domain_id = default
"""
    text = f"""
[DEFAULT]
host = compute1
my_ip = 127.0.0.1
# No broker: conductor, scheduler and compute are in the process of nova's API.
transport_url = fake://
executor_thread_pool_size = 8
state_path = {folder}/state
compute_driver = fake.FakeDriverWithoutFakeNodes
core_plugin = ml2
service_plugins =
api_paste_config = {packages}/neutron/api-paste.ini
enabled_backends = fs:file
enabled_import_methods = []
worker_self_reference_url = http://127.0.0.1:{image_port}
[keystone_authtoken]{login}
[nova]{login}
[neutron]{login}
[placement]{login}
[service_user]{login}
send_service_user_token = true
[identity]
password_hash_rounds = 4
[fernet_tokens]
key_repository = {folder}/state/fernet
[credential]
key_repository = {folder}/state/credential
[placement_database]
connection = {database(folder, "placement")}
[api_database]
connection = {database(folder, "nova_api")}
[wsgi]
api_paste_config = {packages}/nova/api-paste.ini
[vnc]
enabled = false
[oslo_concurrency]
lock_path = {folder}/state/lock
[paste_deploy]
flavor = keystone
config_file = {packages}/glance/glance-api-paste.ini
[glance_store]
default_backend = fs
[fs]
filesystem_store_datadir = {folder}/state/images
[os_glance_staging_store]
filesystem_store_datadir = {folder}/state/staging
[os_glance_tasks_store]
filesystem_store_datadir = {folder}/state/tasks
[ml2]
type_drivers = vxlan
tenant_network_types = vxlan
mechanism_drivers = logger
extension_drivers = port_security
[ml2_type_vxlan]
vni_ranges = 1:10000
"""
    for service in SERVICES:
        (folder / "etc" / f"{service}.conf").write_text(text)


def environment(folder, name):
    """The environment of a process: what differs between processes beats the files."""
    of_services = {f"OS_{service.partition('-')[0].upper()}_CONFIG_DIR": f"{folder}/etc" for service in SERVICES}
    return of_services | {
        "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
        "OS_NOVA_CONFIG_FILES": f"{sys.prefix}/etc/nova/api-paste.ini;nova.conf",
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
        "OS_DATABASE__CONNECTION": database(folder, name),
        "OS_DEFAULT__LOG_FILE": f"{folder}/log/{name}.log",
        "PYTHONWARNINGS": "ignore",
        "XDG_CACHE_HOME": f"{folder}/state",
    }
