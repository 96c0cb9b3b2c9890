//! Whether everything in the world is as people want it.

use polity_core::binding::Binding;
use polity_sim::{Power, VmView};
use serde_json::json;

use super::World;
use crate::simulation::kinds;

impl World<'_> {
    /// Why not everything has settled; none if it has.
    pub(super) fn unsettled(&mut self) -> Option<String> {
        let unix = self.unix();
        let vms = self.sim.vms(unix);
        for (at, object) in self.store.all() {
            let status = &object.tree()["status"];
            let problem = match at.0.as_str() {
                // Whatever its policy did, the host goes on with it.
                "Machine" if self.options.wild.is_some() => {
                    let passed = self.oracle.started_last(object.uid());
                    (passed.is_none_or(|at| at < self.calm_since)).then_some("had no pass since it is quiet")
                }
                // What it made of other objects is its own.
                "ConfigMap" if self.options.wild.is_some() => None,
                "Site" | "Guest" => {
                    let of_kind = |binding: &&Binding| binding.spec.governs.kind == at.0;
                    let Some(binding) = self.bindings.iter().find(of_kind) else {
                        continue;
                    };
                    match at.0.as_str() {
                        "Site" => kinds::site::unsettled(&self.store, at, &object.tree(), binding),
                        _ => kinds::guest::unsettled(&self.store, &vms, at, &object.tree(), binding),
                    }
                }
                _ if object.is_deleting() => Some("is still being deleted"),
                "Machine" => {
                    let of_it: Vec<_> = vms.iter().filter(|vm| vm.owner == object.uid()).collect();
                    let spec = &object.tree()["spec"]["network"]["devices"][0]["nameservers"][0];
                    let told = |vm: &VmView| {
                        spec.as_str()
                            .is_none_or(|name| vm.metadata.as_deref().is_some_and(|m| m.contains(name)))
                    };
                    match of_it.as_slice() {
                        _ if status["pending"].is_array() => Some("has pending entries"),
                        _ if status["taskRef"].is_string() => Some("waits for a task"),
                        _ if status["phase"] != "Running" => Some("is not running"),
                        [vm] if vm.power == Power::On && !vm.ips.is_empty() => {
                            (!told(vm)).then_some("has metadata of an older spec")
                        }
                        _ => Some("has no VM that runs"),
                    }
                }
                "Widget" => {
                    let source = object.str_at("spec.source").unwrap_or_default();
                    let map = ("ConfigMap".to_owned(), at.1.clone(), source.into_owned());
                    let value = self.store.get(&map).and_then(|o| o.at("data.value"));
                    let seen = status["seen"] == value.unwrap_or_else(|| json!("nothing"));
                    let observed = status["observedGeneration"].as_u64() == object.generation();
                    (!seen || !observed).then_some("has not seen what it looks at")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return Some(format!("{at:?} {problem}: {}", object.tree()));
            }
        }
        None
    }
}
