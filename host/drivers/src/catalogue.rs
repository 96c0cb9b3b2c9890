//! What a driver performs, as a catalogue: operations are defined by the host, a driver says which it has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polity_clouds::catalogue::{LONGEST, Named, credential_plan, machine, router, task, vm};
use polity_core::catalogue::{BEGINS_WITHIN, Catalogue, OperationEffect};
use polity_core::contract::driver::Manifest;

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is no manifest.
    #[error("its manifest is none: {0}")]
    Shape(#[from] serde_json::Error),
    /// It names a service that this host does not know.
    #[error("it implements {0:?}; this host knows vm@1, task@1, machine@1 and router@1")]
    Service(String),
    /// It names an operation that the service does not have.
    #[error("{service} has no operation {operation:?}")]
    Operation {
        /// The service.
        service: String,
        /// The operation.
        operation: String,
    },
    /// It does not say how long a server may go on with a create.
    #[error("it does not say how long {0} lingers")]
    Lingers(String),
    /// It creates with a stamp that it cannot find.
    #[error("it creates with stamp {stamp}, but finds {stamps:?}")]
    Stamp {
        /// The stamp of what it creates.
        stamp: u32,
        /// What it finds.
        stamps: Vec<u32>,
    },
    /// The connection's configuration does not follow its schema.
    #[error("spec.driver.configuration: {0}")]
    Configuration(String),
    /// The connection has an address to which the login adds what stands there already.
    #[error(
        "spec.endpoints.{endpoint}: {address} ends in /{path}, which the login adds: name the server alone"
    )]
    Address {
        /// The endpoint.
        endpoint: String,
        /// Its address.
        address: String,
        /// What the login adds.
        path: &'static str,
    },
    /// Its schema is none.
    #[error("its schema of the configuration does not compile: {0}")]
    Schema(String),
}

/// Reads a manifest.
pub(crate) fn manifest(text: &str) -> Result<Manifest, ManifestError> {
    let manifest: Manifest = serde_json::from_str(text)?;
    match manifest.stamps.contains(&manifest.stamp) {
        true => Ok(manifest),
        false => Err(ManifestError::Stamp {
            stamp: manifest.stamp,
            stamps: manifest.stamps,
        }),
    }
}

/// The operations of a driver, with the times that it says.
pub(crate) fn catalogue(manifest: &Manifest) -> Result<Catalogue, ManifestError> {
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
            if operation.effect == OperationEffect::Create {
                let lingers = implements.lingers.get(name);
                let lingers = lingers.ok_or_else(|| ManifestError::Lingers(name.clone()))?;
                operation.visible_within = BEGINS_WITHIN + LONGEST + Duration::from_millis(*lingers);
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

/// The schema of what an operation of a service answers; `None` if drivers have no such service.
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
    use polity_core::contract::Need;
    use polity_core::contract::driver::{Implements, Login};

    fn implementing(service: Implements) -> Result<Catalogue, ManifestError> {
        catalogue(&Manifest::new("d", "1", Login::None).implements(service))
    }

    #[test]
    fn a_driver_has_the_operations_that_it_says_with_its_times() {
        let service = Implements::new("machine@1", &["machine.create", "machine.status"]);
        let machine = service.lingers("machine.create", Duration::from_secs(300));
        let catalogue = implementing(machine).expect("it is complete");
        let names: Vec<&String> = catalogue.operations.keys().collect();
        assert_eq!(names, ["machine.create", "machine.status"]);
        let lacks: Vec<&String> = catalogue.lacks.iter().collect();
        assert_eq!(lacks, ["machine.initialize", "machine.list", "machine.volumes"]);
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
            "these it would have to have"
        );
        let create = &catalogue.operations["machine.create"];
        assert_eq!(create.visible_within, Duration::from_secs(315));
    }

    #[test]
    fn what_a_driver_cannot_say_is_refused() {
        for (service, why) in [
            (Implements::new("machine@2", &[]), "it implements \"machine@2\""),
            (
                Implements::new("vm@1", &["vm.fly"]),
                "vm@1 has no operation \"vm.fly\"",
            ),
            (
                Implements::new("vm@1", &["vm.clone"]),
                "it does not say how long vm.clone lingers",
            ),
        ] {
            let refused = implementing(service).expect_err("it is refused").to_string();
            assert!(refused.starts_with(why), "{refused}");
        }
        let stamps = r#"{"name":"d","version":"1","login":"none","implements":[],"stamp":2,"stamps":[1],"configSchema":{},"endpoints":{}}"#;
        let refused = manifest(stamps).expect_err("it is refused").to_string();
        assert_eq!(refused, "it creates with stamp 2, but finds [1]");
    }
}
