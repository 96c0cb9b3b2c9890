//! What a request may be that only reads.
//!
//! A read is sent without an act, an entry or a fence, and it is repeated. So the word of a driver is not enough: the host lists, by
//! login and operation, which requests are reads. Nothing else leaves the host under a read. A driver that needs another read takes
//! a line here.

use polity_core::contract::driver::Login;

/// A request that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// `GET` or `HEAD` of this path at the root of this service. `*` stands for one segment.
    Resource {
        /// The service of the endpoint.
        service: &'static str,
        /// The segments of the path.
        path: &'static [&'static str],
    },
    /// `GET` or `HEAD` of this path at a dynamic endpoint.
    Appliance(&'static [&'static str]),
    /// A form with this `Action`, posted to this service, without a path or a query.
    Action {
        /// The service of the endpoint.
        service: &'static str,
        /// The action.
        action: &'static str,
    },
    /// A SOAP envelope that contains this element alone, posted to this path.
    Method {
        /// The segments of the path.
        path: &'static [&'static str],
        /// The name of the element.
        method: &'static str,
    },
}

/// The reads of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Each `GET` and `HEAD`. No service of such a login says which paths read.
    Resources,
    /// Only these.
    Listed(&'static [ReadRequest]),
}

use ReadRequest::{Action, Appliance, Method, Resource};

const INSTANCES: ReadRequest = Action {
    service: "ec2",
    action: "DescribeInstances",
};
const IMAGES: ReadRequest = Action {
    service: "ec2",
    action: "DescribeImages",
};
const INTERFACES: ReadRequest = Action {
    service: "ec2",
    action: "DescribeNetworkInterfaces",
};

const fn compute(path: &'static [&'static str]) -> ReadRequest {
    Resource {
        service: "compute",
        path,
    }
}

const fn network(path: &'static [&'static str]) -> ReadRequest {
    Resource {
        service: "network",
        path,
    }
}

const SERVER: ReadRequest = compute(&["v2.1", "servers", "*"]);
const SERVERS: ReadRequest = compute(&["v2.1", "servers"]);
const SERVERS_DETAIL: ReadRequest = compute(&["v2.1", "servers", "detail"]);
const PORTS: ReadRequest = network(&["v2.0", "ports"]);
const ROUTERS: ReadRequest = network(&["v2.0", "routers"]);
const IMAGE: ReadRequest = Resource {
    service: "image",
    path: &["v2", "images", "*"],
};
const APPLIANCE_INTERFACES: ReadRequest = Appliance(&["v1", "system", "interfaces"]);
const APPLIANCE_CONFIG: ReadRequest = Appliance(&["v1", "system", "config"]);

const fn method(method: &'static str) -> ReadRequest {
    Method {
        path: &["sdk"],
        method,
    }
}

/// The services of a vCenter, and the properties of any object.
const PROPERTIES: &[ReadRequest] = &[
    method("RetrieveServiceContent"),
    method("RetrievePropertiesEx"),
    method("ContinueRetrievePropertiesEx"),
];
/// The same, and searches of the inventory.
const INVENTORY: &[ReadRequest] = &[
    method("RetrieveServiceContent"),
    method("RetrievePropertiesEx"),
    method("ContinueRetrievePropertiesEx"),
    method("FindByInventoryPath"),
    method("FindAllByUuid"),
];

/// A login, operations, and the reads that each of these operations may send.
type Row = (Login, &'static [&'static str], &'static [ReadRequest]);

/// Sources: the references of the EC2 API, of the compute, network and image APIs, of the vSphere web services, and of akanda's
/// appliance.
const TABLE: &[Row] = &[
    (Login::AwsSigv4, &["machine.create"], &[INSTANCES, IMAGES]),
    (
        Login::AwsSigv4,
        &[
            "machine.status",
            "machine.delete",
            "machine.list",
            "orphan.delete",
        ],
        &[INSTANCES],
    ),
    (Login::AwsSigv4, &["machine.initialize"], &[INSTANCES, INTERFACES]),
    (Login::AwsSigv4, &["machine.volumes"], &[]),
    (Login::Keystone, &["image.get"], &[IMAGE]),
    (
        Login::Keystone,
        &["port.get", "port.attach", "port.detach"],
        &[SERVER, PORTS],
    ),
    (Login::Keystone, &["router.resource"], &[ROUTERS]),
    (
        Login::Keystone,
        &["router.get", "router.delete", "router.delete-ports"],
        &[SERVER, SERVERS, SERVERS_DETAIL, PORTS],
    ),
    (
        Login::Keystone,
        &["router.boot"],
        &[SERVER, SERVERS, SERVERS_DETAIL, PORTS, IMAGE],
    ),
    (
        Login::Keystone,
        &["router.alive", "router.interfaces", "router.stats"],
        &[SERVER, PORTS, APPLIANCE_INTERFACES],
    ),
    (
        Login::Keystone,
        &["config.push"],
        &[SERVER, PORTS, APPLIANCE_CONFIG],
    ),
    (Login::Keystone, &["task.get"], &[]),
    (
        Login::VsphereSession,
        &[
            "vm.clone",
            "vm.find",
            "vm.get",
            "vm.metadata",
            "vm.nics",
            "vm.power",
            "vm.reconfigure",
            "vm.power-on",
            "vm.power-off",
            "vm.destroy",
        ],
        INVENTORY,
    ),
    (Login::VsphereSession, &["task.get"], PROPERTIES),
];

/// The reads that an operation of a driver may send with this login.
pub fn reads(login: Login, operation: &str) -> Reads {
    if matches!(login, Login::None | Login::Basic | Login::Bearer) {
        return Reads::Resources;
    }
    let mut rows = TABLE.iter();
    let row = rows.find(|(known, operations, _)| *known == login && operations.contains(&operation));
    Reads::Listed(row.map_or(&[], |(_, _, reads)| reads))
}

/// Checks that a driver may name this service. The request to a service carries the session's token or signature, so a service that
/// hands out credentials, such as `sts` or `identity`, would give the driver an identity.
///
/// # Errors
/// The services that it may name.
pub fn check_service(login: Login, service: &str) -> Result<(), String> {
    let allowed: &[&str] = match login {
        Login::AwsSigv4 => &["ec2"],
        Login::Keystone => &["compute", "network", "image"],
        Login::None | Login::Basic | Login::Bearer | Login::VsphereSession => return Ok(()),
    };
    if allowed.contains(&service) {
        Ok(())
    } else {
        Err(allowed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_in_one_row_and_its_services_may_be_named() {
        for (nth, (login, operations, reads)) in TABLE.iter().enumerate() {
            for operation in *operations {
                let is_same = |(other, names, _): &&Row| other == login && names.contains(operation);
                assert_eq!(TABLE.iter().filter(is_same).count(), 1, "row {nth}: {operation}");
            }
            for read in *reads {
                if let Resource { service, .. } | Action { service, .. } = read {
                    assert_eq!(check_service(*login, service), Ok(()), "{read:?}");
                }
            }
        }
    }

    #[test]
    fn a_service_that_hands_out_credentials_may_not_be_named() {
        for (login, service) in [
            (Login::AwsSigv4, "sts"),
            (Login::AwsSigv4, "iam"),
            (Login::Keystone, "identity"),
            (Login::Keystone, ""),
        ] {
            assert!(check_service(login, service).is_err(), "{service}");
        }
        assert_eq!(reads(Login::AwsSigv4, "vm.clone"), Reads::Listed(&[]));
        assert_eq!(reads(Login::Bearer, "machine.status"), Reads::Resources);
    }
}
