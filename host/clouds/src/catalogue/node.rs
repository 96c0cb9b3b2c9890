//! Operations of a machine for its own agent. In the cloud `node` this is the machine on which the host runs; the
//! simulated cloud has many such machines.

use std::time::Duration;

use polity_core::catalogue::{Operation, OperationEffect};
use serde_json::{Value, json};

use super::{LONGEST, Named};

/// Installs packages.
pub const ENSURE: &str = "node.ensure";
/// Ends a boot.
pub const REBOOT: &str = "node.reboot";
/// Reads the initial versions of packages.
pub const SEED: &str = "node.seed";
/// Reads the installed versions of packages.
pub const VERSIONS: &str = "node.versions";
/// Reads the boot and the work.
pub const WORK: &str = "node.work";
/// Reads whether a reboot is needed.
pub const REBOOT_REQUIRED: &str = "node.reboot-required";
/// Declares the machine ready.
pub const INITIALIZED: &str = "node.initialized";

/// These operations as a catalogue of their own.
#[cfg(feature = "node")]
pub(crate) fn catalogue() -> polity_core::catalogue::Catalogue {
    let operations = operations()
        .into_iter()
        .map(|(name, operation)| (name.to_owned(), operation));
    polity_core::catalogue::Catalogue {
        operations: operations.collect(),
        ..Default::default()
    }
}

/// The name of the service, with its major version.
const SERVICE: &str = "node@1";

/// The operations by name. Work that takes longer than a call goes on after the answer; `node.work` reads its progress.
pub fn operations() -> Vec<Named> {
    use OperationEffect::{Change, Read};
    let packages = json!({"type": "array", "items": package(), "maxItems": MOST_PACKAGES});
    let seed = json!({"node": name(), "versions": versions(), "initialized": {"type": "boolean"}});
    let nothing = || fields(json!({}));
    let operations = [
        operation(
            SEED,
            "The versions that the agent was installed with; not-found if it was installed without versions.",
            (Read, fields(node()), fields(seed)),
        ),
        operation(
            VERSIONS,
            "Which versions of these packages are installed.",
            (
                Read,
                with(node(), json!({"packages": packages})),
                with(node(), json!({"versions": versions()})),
            ),
        ),
        operation(
            WORK,
            "The id of the present boot, and the work that runs or ran last.",
            (Read, fields(node()), working()),
        ),
        operation(
            REBOOT_REQUIRED,
            "Whether an installed package needs a reboot.",
            (
                Read,
                fields(node()),
                with(node(), json!({"required": {"type": "boolean"}})),
            ),
        ),
        operation(
            ENSURE,
            "Begins to install exactly these versions and to hold them. With `upgrade`, also upgrades Kubernetes in between. \
             If the same work already runs, the call joins it.",
            (Change, ensuring(), nothing()),
        ),
        operation(
            INITIALIZED,
            "Declares the machine ready.",
            (Change, fields(node()), nothing()),
        ),
        operation(
            REBOOT,
            "Reboots the machine a moment later; failed-precondition if the machine is in another boot.",
            (Change, with(node(), json!({"bootId": name()})), nothing()),
        ),
    ];
    operations.into()
}

fn node() -> Value {
    json!({"node": name()})
}

/// The schema of the arguments of `node.ensure`.
fn ensuring() -> Value {
    json!({
        "type": "object", "required": ["node", "versions"], "additionalProperties": false,
        "properties": {"node": name(), "versions": versions(), "upgrade": upgrade()},
    })
}

/// What kubeadm does between the packages: it upgrades the cluster (`apply`), or only this node (`node`).
fn upgrade() -> Value {
    json!({"enum": ["apply", "node"]})
}

/// The schema of the answer of `node.work`.
fn working() -> Value {
    let reasons = [
        "KubeadmMissing",
        "NotJoined",
        "VersionSkew",
        "PackageHeld",
        "DiskFull",
        "UpgradeFailed",
    ];
    let error = json!({
        "type": "object", "required": ["code", "message"], "additionalProperties": false,
        "properties": {"code": text(), "message": text(), "reason": {"enum": reasons}},
    });
    let work = json!({
        "type": "object", "required": ["versions", "state"], "additionalProperties": false,
        "properties": {
            "versions": versions(), "upgrade": upgrade(), "state": {"enum": ["running", "done", "failed"]},
            "bootId": text(), "error": error,
        },
    });
    json!({
        "type": "object", "required": ["node", "bootId"], "additionalProperties": false,
        "properties": {"node": name(), "bootId": text(), "machineId": text(), "work": work},
    })
}

/// An object with the properties of both.
fn with(mut properties: Value, more: Value) -> Value {
    if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
        properties.extend(more);
    }
    fields(properties)
}

/// The most packages of a node. No node has so many pinned.
const MOST_PACKAGES: usize = 64;

fn operation(
    name: &'static str,
    description: &str,
    (effect, arguments, answer): (OperationEffect, Value, Value),
) -> Named {
    let operation = Operation {
        description: description.to_owned(),
        service: SERVICE.to_owned(),
        effect,
        arguments,
        answer,
        longest: LONGEST,
        visible_within: Duration::ZERO,
        intent: None,
        sealed: Vec::new(),
    };
    (name, operation)
}

/// An object that requires all its properties.
fn fields(properties: Value) -> Value {
    let required: Vec<&String> = properties
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys())
        .collect();
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

/// A schema of versions by package. It excludes every text that apt would read as an option, a pattern or another
/// package's version. Source: Debian Policy 5.6.1, 5.6.12.
fn versions() -> Value {
    json!({
        "type": "object", "propertyNames": package(), "maxProperties": MOST_PACKAGES,
        "additionalProperties": {"type": "string", "pattern": "^[0-9][A-Za-z0-9.+:~-]{0,127}$"},
    })
}

fn package() -> Value {
    json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9.-]{1,127}$"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1})
}
