//! Loads a policy from a compiled component: checks that its imports, exports, role and manifest follow the
//! contract.

use polity_core::binding::{Limits, PolicyId};
use polity_core::contract::Role;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::compile::{self, Compiled};
use crate::error::{LoadError, cut};
use crate::manifest;
use crate::policy::{Policy, Sizes, World};
use crate::state::State;
use crate::wit::{identity, lifecycle, retry};

/// The contract's package, as it begins the names of imports and exports.
const PACKAGE: &str = "polity:policy/";
/// The version after the name of an interface. Within 0.2 no type changes and new functions are in interfaces
/// of their own, so every 0.2.x loads.
const VERSION: &str = "@0.2.";

/// Checks a compiled policy and asks it for its manifest.
pub(crate) fn load(engine: &Engine, id: PolicyId, compiled: &Compiled) -> Result<Policy, LoadError> {
    let component = &compiled.component;
    check_imports(engine, component)?;
    let role = role(engine, component)?;
    let world = link(engine, component, role)?;
    let mut sizes = Sizes {
        instances: compiled.declared.instances,
        memory: 0,
        code: compile::size(component),
    };
    let said = world.describe(
        engine,
        &Limits::default(),
        &mut sizes,
        compiled.declared.manifest.as_deref(),
    );
    let manifest = said.and_then(|text| manifest::read(&text).map_err(|e| e.to_string()));
    let manifest = manifest.map_err(|e| LoadError::Describe(cut(e)))?;
    if manifest.role != role {
        return Err(LoadError::Role {
            said: manifest.role,
            exported: role,
        });
    }
    Ok(Policy::new(id, engine.clone(), world, manifest, sizes))
}

fn check_imports(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let mut imports = imports(engine, component).into_iter();
    match imports.find(|name| !matches!(interface(name), Some("diagnostics" | "debug"))) {
        Some(name) => Err(LoadError::Import(cut(name))),
        None => Ok(()),
    }
}

/// The names of all imports but those interfaces that have types alone.
pub(crate) fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    let imports = component.component_type();
    let imports = imports.imports(engine).filter(|(_, import)| {
        let only_types = match &import.ty {
            ComponentItem::ComponentInstance(instance) => instance
                .exports(engine)
                .all(|(_, export)| matches!(export.ty, ComponentItem::Type(_))),
            _ => false,
        };
        !only_types
    });
    imports.map(|(name, _)| name.to_owned()).collect()
}

/// The name of the contract's interface that an import or export has; `None` if it is no interface of this
/// version of the contract.
fn interface(name: &str) -> Option<&str> {
    let (interface, version) = name.strip_prefix(PACKAGE)?.split_once(VERSION)?;
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(interface)
}

fn role(engine: &Engine, component: &Component) -> Result<Role, LoadError> {
    let exports: Vec<String> = component
        .component_type()
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    let has = |name: &str| exports.iter().any(|export| interface(export) == Some(name));
    let roles: Vec<Role> = [
        ("lifecycle", Role::Lifecycle),
        ("identity", Role::Identity),
        ("retry", Role::Retry),
    ]
    .into_iter()
    .filter(|(name, _)| has(name))
    .map(|(_, role)| role)
    .collect();
    match roles[..] {
        [role] if has("policy-info") => Ok(role),
        _ => {
            let found = if exports.is_empty() {
                "nothing".into()
            } else {
                exports.join(", ")
            };
            Err(LoadError::Export { found: cut(found) })
        }
    }
}

fn link(engine: &Engine, component: &Component, role: Role) -> Result<World, LoadError> {
    let mut linker: Linker<State> = Linker::new(engine);
    let linked = lifecycle::LifecyclePolicy::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
        .and_then(|()| linker.instantiate_pre(component))
        .and_then(|pre| {
            Ok(match role {
                Role::Lifecycle => World::Lifecycle(lifecycle::LifecyclePolicyPre::new(pre)?),
                Role::Identity => World::Identity(identity::IdentityPolicyPre::new(pre)?),
                Role::Retry => World::Retry(retry::RetryPolicyPre::new(pre)?),
            })
        });
    linked.map_err(|e| LoadError::NotComponent(cut(format!("{e:#}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_the_contracts_in_each_version_of_0_2_and_in_no_other() {
        let of = |version: &str| interface(&format!("polity:policy/lifecycle@{version}")).is_some();
        for version in ["0.2.0", "0.2.1", "0.2.17"] {
            assert!(of(version), "{version}");
        }
        for version in [
            "0.1.0", "0.20.0", "0.2", "0.2.", "0.2.0-rc", "0.2.0.1", "1.2.0", "0.2.x",
        ] {
            assert!(!of(version), "{version}");
        }
        assert_eq!(interface("polity:driver/lifecycle@0.2.0"), None);
        assert_eq!(interface("lifecycle"), None);
    }
}
