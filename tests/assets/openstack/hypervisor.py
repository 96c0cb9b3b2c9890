"""Nova's fake hypervisor, with guests: in each server runs an appliance, which answers at the server's address.

The metadata `spawn-seconds` of a server says how long its spawn takes, and `spawn-fails` that it fails. `attach-seconds` says how
long it takes to plug in a port: nova's API waits for that (`attach_interface` of nova/compute/rpcapi.py is a call).
"""

import time

from nova import exception
from nova.virt import fake

from appliance import Appliance

# The servers with an appliance, by their ids.
appliances = {}


def interface(vif):
    """The interface of a guest that a port of neutron is."""
    addresses = [ip["address"] for subnet in vif["network"]["subnets"] for ip in subnet["ips"]]
    return {"lladdr": vif["address"], "addresses": addresses}


def install():
    driver = fake.FakeDriver
    spawn, destroy = driver.spawn, driver.destroy
    attach, detach = driver.attach_interface, driver.detach_interface

    def slow_spawn(self, context, instance, image, files, password, allocations, network_info=None, **more):
        time.sleep(float(instance.metadata.get("spawn-seconds", 0)))
        if "spawn-fails" in instance.metadata:
            raise exception.BuildAbortException(instance_uuid=instance.uuid, reason="asked to")
        spawn(self, context, instance, image, files, password, allocations, network_info=network_info, **more)
        appliances[instance.uuid] = Appliance([interface(vif) for vif in network_info or []])

    def destroy_with_guest(self, context, instance, *rest, **more):
        gone = appliances.pop(instance.uuid, None)
        if gone:
            gone.end()
        destroy(self, context, instance, *rest, **more)

    def attach_to_guest(self, context, instance, image, vif):
        time.sleep(float(instance.metadata.get("attach-seconds", 0)))
        attach(self, context, instance, image, vif)
        appliances[instance.uuid].plug(interface(vif))

    def detach_from_guest(self, context, instance, vif):
        detach(self, context, instance, vif)
        appliances[instance.uuid].unplug(vif["address"])

    driver.spawn, driver.destroy = slow_spawn, destroy_with_guest
    driver.attach_interface, driver.detach_interface = attach_to_guest, detach_from_guest
