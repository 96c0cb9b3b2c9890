//! The catalogue of a driver: the host defines the operations, and the driver's manifest lists those that it implements.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polity_clouds::catalogue::{
    Named, check_refusals, check_service, credential_plan, machine, router, task, vm,
};
use polity_core::catalogue::{BEGINS_WITHIN, Catalogue, OperationEffect};
use polity_core::contract::driver::{Endpoint, Manifest};
use polity_kube_rules::schema::Causes;

/// The most bytes of the name of an endpoint's service.
const LONGEST_SERVICE: usize = 40;
/// The most bytes of a manifest's name or version: the same as for a name in Kubernetes, and for a policy.
const NAME: usize = 253;

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The manifest cannot be read.
    #[error("the driver's manifest cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
    /// The manifest names a service that this host does not know.
    #[error("the driver implements {0:?}; this host knows vm@1, task@1, machine@1 and router@1")]
    Service(String),
    /// The manifest names an operation that the service does not have.
    #[error("{service} has no operation {operation:?}, which the driver's manifest lists")]
    Operation {
        /// The service.
        service: String,
        /// The operation.
        operation: String,
    },
    /// The manifest does not say how long a server may go on with a create.
    #[error("the driver's manifest does not say how long {0} lingers: it needs an entry in lingers")]
    Lingers(String),
    /// An endpoint's service is no name of a service.
    #[error(
        "the driver's endpoint {endpoint:?} is of the service {service:?}; a service has at most 40 small letters, digits and hyphens"
    )]
    NoService {
        /// The endpoint.
        endpoint: String,
        /// The service.
        service: String,
    },
    /// An endpoint is of a service that a driver with this login may not name.
    #[error(
        "the driver's endpoint {endpoint:?} is of the service {service:?}; with this login a driver may name {allowed}"
    )]
    OtherService {
        /// The endpoint.
        endpoint: String,
        /// The service.
        service: String,
        /// The services that it may name.
        allowed: String,
    },
    /// An endpoint lists errors that must not count as refusals.
    #[error("the refusals of the driver's endpoint {endpoint:?}: {rule}")]
    Refusals {
        /// The endpoint.
        endpoint: String,
        /// The rule that they break.
        rule: String,
    },
    /// The driver creates with a stamp that it cannot find.
    #[error(
        "the driver creates with stamp {stamp}, but finds only {stamps:?}: add the stamp to stamps in its manifest"
    )]
    Stamp {
        /// The stamp with which it creates.
        stamp: u32,
        /// The stamps that it finds.
        stamps: Vec<u32>,
    },
    /// The connection's configuration does not match the driver's schema.
    #[error("spec.driver.configuration: {0}")]
    Configuration(Causes),
    /// An address of the connection already ends in the path that the login adds.
    #[error(
        "spec.endpoints.{endpoint}: {address} ends in /{path}, which the login adds: name the server alone"
    )]
    Address {
        /// The endpoint.
        endpoint: String,
        /// Its address.
        address: String,
        /// The path that the login adds.
        path: &'static str,
    },
    /// The driver's schema of the configuration has what no schema may have.
    #[error("the driver's schema of the configuration does not compile: {0}")]
    Schema(Causes),
    /// A schema of the catalogue does not compile. This is a bug of the host.
    #[error("the catalogue's schema of {operation} does not compile; this is a bug of Polity: {causes}")]
    Catalogue {
        /// The operation.
        operation: String,
        /// The errors in its schema.
        causes: Causes,
    },
    /// A text of the manifest is too long.
    #[error("the driver's manifest: {field} has {bytes} bytes; the limit is {NAME}")]
    Long {
        /// The field.
        field: &'static str,
        /// The length of its text.
        bytes: usize,
    },
}

/// Reads a manifest.
pub(crate) fn manifest(text: &str) -> Result<Manifest, ManifestError> {
    let manifest: Manifest = serde_json::from_str(text)?;
    let shown = |text: &str| text.chars().take(80).collect();
    for (name, endpoint) in &manifest.endpoints {
        let Endpoint {
            service, refusals, ..
        } = endpoint;
        // A login makes the name of a server of the name of a service.
        let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if service.len() > LONGEST_SERVICE || !service.bytes().all(is_fine) {
            return Err(ManifestError::NoService {
                endpoint: shown(name),
                service: shown(service),
            });
        }
        if endpoint.dynamic.is_none() {
            check_service(manifest.login, service).map_err(|allowed| ManifestError::OtherService {
                endpoint: shown(name),
                service: shown(service),
                allowed,
            })?;
        }
        let checked = refusals
            .iter()
            .try_for_each(|refusals| check_refusals(manifest.login, refusals));
        checked.map_err(|rule| ManifestError::Refusals {
            endpoint: shown(name),
            rule,
        })?;
    }
    for (field, text) in [("name", &manifest.name), ("version", &manifest.version)] {
        if text.len() > NAME {
            let bytes = text.len();
            return Err(ManifestError::Long { field, bytes });
        }
    }
    if manifest.stamps.contains(&manifest.stamp) {
        Ok(manifest)
    } else {
        Err(ManifestError::Stamp {
            stamp: manifest.stamp,
            stamps: manifest.stamps,
        })
    }
}

/// The operations of a driver, with the times of its manifest. Each may take as long as the connection says.
pub(crate) fn catalogue(manifest: &Manifest, longest: Duration) -> Result<Catalogue, ManifestError> {
    let (mut operations, mut lacks) = (BTreeMap::new(), BTreeSet::new());
    for implements in &manifest.implements {
        let service = &implements.service;
        let mut all: BTreeMap<&str, _> = known(service)
            .ok_or_else(|| ManifestError::Service(service.clone()))?
            .into_iter()
            .collect();
        for name in &implements.operations {
            let unknown = || ManifestError::Operation {
                service: service.clone(),
                operation: name.clone(),
            };
            let mut operation = all.remove(name.as_str()).ok_or_else(unknown)?;
            operation.longest = longest;
            if operation.effect == OperationEffect::Create {
                let lingers = implements.lingers.get(name);
                let lingers = lingers.ok_or_else(|| ManifestError::Lingers(name.clone()))?;
                operation.visible_within = BEGINS_WITHIN + longest + Duration::from_millis(*lingers);
            }
            operations.insert(name.clone(), operation);
        }
        let optional = all.into_keys().filter(|name| machine::OPTIONAL.contains(name));
        lacks.extend(optional.map(str::to_owned));
    }
    Ok(Catalogue {
        stamp: manifest.stamp,
        finds: manifest.stamps.clone(),
        operations,
        lacks,
        credential: Some(credential_plan()),
    })
}

/// The schema for the answer of an operation; `None` if drivers do not have this service or operation.
pub fn answer_schema(service: &str, operation: &str) -> Option<serde_json::Value> {
    let mut operations = known(service)?.into_iter();
    let (_, operation) = operations.find(|(name, _)| *name == operation)?;
    Some(operation.answer)
}

fn known(service: &str) -> Option<Vec<Named>> {
    let later = Duration::ZERO;
    Some(match service {
        "vm@1" => vm::operations(later),
        "machine@1" => machine::operations(later),
        "router@1" => router::operations(later),
        "task@1" => task::operations(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_clouds::catalogue::LONGEST;
    use polity_core::contract::Need;
    use polity_core::contract::driver::{Implements, Login};
    use serde_json::json;

    fn implementing(service: Implements) -> Result<Catalogue, ManifestError> {
        catalogue(&Manifest::new("d", "1", Login::None).implements(service), LONGEST)
    }

    fn manifest_of(endpoints: serde_json::Value) -> Result<Manifest, ManifestError> {
        let mut it = serde_json::to_value(Manifest::new("d", "1", Login::AwsSigv4)).expect("JSON");
        it["endpoints"] = endpoints;
        manifest(&it.to_string())
    }

    #[test]
    fn a_driver_has_the_operations_that_it_says_with_its_times() {
        let service = Implements::new("machine@1", &["machine.create", "machine.status"]);
        let machine = service.lingers("machine.create", Duration::from_secs(300));
        let catalogue = implementing(machine).expect("it is complete");
        let names: Vec<&String> = catalogue.operations.keys().collect();
        assert_eq!(names, ["machine.create", "machine.status"]);
        let lacks: Vec<&String> = catalogue.lacks.iter().collect();
        assert_eq!(
            lacks,
            [
                "machine.initialize",
                "machine.list",
                "machine.volumes",
                "orphan.delete"
            ]
        );
        let needs = [
            "machine.*",
            "machine.status",
            "machine.list",
            "machine.delete",
            "vm.clone",
        ];
        let needs = needs.map(|name| Need::Cloud(name.to_owned()));
        let missing: Vec<&str> = catalogue.missing(&needs).collect();
        assert_eq!(
            missing,
            ["machine.delete", "vm.clone"],
            "the driver must implement these"
        );
        let create = &catalogue.operations["machine.create"];
        assert_eq!(create.visible_within, Duration::from_secs(315));
    }

    #[test]
    fn what_a_driver_cannot_say_is_refused() {
        for (service, why) in [
            (
                Implements::new("machine@2", &[]),
                "the driver implements \"machine@2\"",
            ),
            (
                Implements::new("vm@1", &["vm.fly"]),
                "vm@1 has no operation \"vm.fly\"",
            ),
            (
                Implements::new("vm@1", &["vm.clone"]),
                "the driver's manifest does not say how long vm.clone lingers",
            ),
        ] {
            let refused = implementing(service).expect_err("it is refused").to_string();
            assert!(refused.starts_with(why), "{refused}");
        }
        for service in ["localhost:8080/", "a.b", "EC2", &"a".repeat(41)] {
            let refused = manifest_of(json!({"api": {"service": service}})).expect_err("it is refused");
            assert!(refused.to_string().contains("is of the service"), "{refused}");
        }
        let sts = manifest_of(json!({"api": {"service": "sts"}})).expect_err("it hands out credentials");
        assert!(sts.to_string().contains("may name ec2"), "{sts}");
        assert!(manifest_of(json!({"api": {"service": "ec2"}})).is_ok());
        let stamps = r#"{"name":"d","version":"1","login":"none","implements":[],"stamp":2,"stamps":[1],"configSchema":{},"endpoints":{}}"#;
        let refused = manifest(stamps).expect_err("it is refused").to_string();
        assert_eq!(
            refused,
            "the driver creates with stamp 2, but finds only [1]: add the stamp to stamps in its manifest"
        );
    }
}
