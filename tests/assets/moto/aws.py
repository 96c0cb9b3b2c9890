"""EC2 and STS by moto, with what EC2 promises of client tokens and moto does not do. Usage: aws.py PORT"""

import sys

from moto.ec2 import utils
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceBackend
from moto.server import main

# moto takes this for a request without a token.
NO_TOKEN = "ABCDE"

# DescribeInstances can then be filtered by it.
utils.filter_dict_attribute_mapping["client-token"] = "client_token"

launch = InstanceBackend.run_instances


def launched_with(backend, token):
    """The reservation that was launched with a token, or None."""
    for reservation in backend.reservations.values():
        for instance in reservation.instances:
            if getattr(instance, "client_token", None) == token:
                return reservation
    return None


def run_instances(self, image_id, count, user_data, security_group_names, **rest):
    """Launches once for each token, as EC2 does."""
    token = rest.get("client_token")
    known = launched_with(self, token) if token and token != NO_TOKEN else None
    if known is None:
        return launch(self, image_id, count, user_data, security_group_names, **rest)
    instance = known.instances[0]
    if instance.state == "terminated":
        raise EC2ClientError("IdempotentInstanceTerminated", "The instance of this token is terminated.")
    if (instance.image_id, instance.instance_type) != (image_id, rest.get("instance_type")):
        raise EC2ClientError("IdempotentParameterMismatch", "The arguments differ from those of the first request.")
    return known


InstanceBackend.run_instances = run_instances
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
