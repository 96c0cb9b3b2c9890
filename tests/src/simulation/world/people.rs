//! The actions of people, other controllers and chance in a scenario.

use polity_core::controller::Input;
use serde_json::{Value, json};

use super::{Event, World};
use crate::simulation::bindings::{MACHINES, WIDGETS};
use crate::simulation::kinds;
use crate::simulation::oracle::Verdict;
use crate::simulation::scenario::Action;
use crate::simulation::store::{Place, merge, place};

impl World<'_> {
    /// Does what the scenario says.
    pub(super) fn act(&mut self, index: usize) -> Verdict {
        let (_, action) = self.scenario.actions[index].clone();
        trace!(self, "{action:?}");
        self.edits += 1;
        let nth = self.edits;
        match action.clone() {
            Action::Create(at) => {
                let _ = self.store.create("user", new_object(&at, nth));
            }
            Action::Delete(at) => {
                let unix = self.unix();
                let _ = self.store.delete("user", &at, unix);
            }
            Action::Edit(at) => {
                self.user(&at, None, edit(&at, nth));
            }
            Action::Label(at) => {
                let label = format!("l{nth}");
                self.user(&at, None, json!({"metadata": {"labels": {label: "x"}}}));
            }
            Action::Heartbeat(at, more) => {
                self.condition(&at, nth);
                if let Some(more) = more.checked_sub(1).filter(|more| *more > 0) {
                    let when = self.now + self.chance.between(1, 400);
                    self.scenario.actions.push((when, Action::Heartbeat(at, more)));
                    let index = self.scenario.actions.len() - 1;
                    self.schedule(when, Event::Act(index));
                }
            }
            Action::Meddle(at) => self.meddle(&at, nth),
            Action::Request(at) => {
                let nonce = json!({"request.polity.dev/look": nth.to_string()});
                self.user(&at, None, json!({"metadata": {"annotations": nonce}}));
            }
            Action::Patch(at, subresource, patch) => self.user(&at, subresource, patch),
            Action::CutWatches(host) => self.cut_watches(host),
            Action::Crash(host) => self.crash(host),
            Action::Stop(host) => {
                let life = self.hosts[host].life;
                self.feed(host, life, Input::Stop)?;
                // Some have no patience.
                if nth.is_multiple_of(2) {
                    self.feed(host, life, Input::Cut)?;
                }
            }
            Action::Pause(host, millis) => {
                self.hosts[host].paused = self.hosts[host].controller.is_some();
                let life = self.hosts[host].life;
                self.schedule(self.now + millis, Event::Resume(host, life));
            }
            Action::Skew(host, millis) => self.hosts[host].ahead += millis,
            Action::JumpAhead(millis) => self.jumped += millis,
            Action::Swap(..) | Action::Unbind(_) | Action::Bind(_) => self.rebind(&action),
        }
        Ok(())
    }

    /// Another controller writes what the policy writes.
    fn meddle(&mut self, at: &Place, nth: u64) {
        let status = match at.0.as_str() {
            "Machine" if nth.is_multiple_of(2) => json!({"addresses": [format!("192.0.2.{nth}")]}),
            "Machine" => json!({"phase": "Cloning"}),
            // A ConfigMap has no status: it is taken from its Site, or written anew.
            "ConfigMap" if nth.is_multiple_of(2) => {
                return self.user(
                    at,
                    None,
                    json!({"metadata": {"labels": {"site": null, "owner": null}}}),
                );
            }
            "ConfigMap" => return self.user(at, None, json!({"data": {"value": format!("meddled {nth}")}})),
            "Guest" | "Site" => json!({"form": null}),
            _ => json!({"seen": format!("meddled {nth}")}),
        };
        self.user(at, Some("status"), json!({"status": status}));
    }

    /// Somebody binds another policy, or takes a binding away or brings it back.
    fn rebind(&mut self, action: &Action) {
        let name = match *action {
            Action::Swap(name, role) => {
                let binding = self.bindings.iter_mut().find(|binding| binding.name == name);
                binding.into_iter().for_each(|binding| kinds::swap(binding, role));
                name
            }
            Action::Unbind(name) => {
                self.unbound.insert(name.to_owned());
                name
            }
            Action::Bind(name) => {
                self.unbound.remove(name);
                name
            }
            _ => return,
        };
        self.tell_hosts(name);
    }

    /// Somebody asks for a pass of every Machine.
    pub(super) fn ask_for_passes(&mut self) {
        let machines = self.store.all().filter(|(at, _)| at.0 == "Machine");
        let machines: Vec<Place> = machines.map(|(at, _)| at.clone()).collect();
        for at in machines {
            self.user(
                &at,
                None,
                json!({"metadata": {"annotations": {"request.polity.dev/quiet": "now"}}}),
            );
        }
    }

    pub(super) fn user(&mut self, at: &Place, subresource: Option<&str>, patch: Value) {
        let _ = self.store.patch("user", at, subresource, None, &patch);
    }

    pub(super) fn condition(&mut self, at: &Place, nth: u64) {
        let Some(object) = self.store.get(at) else { return };
        let mut all = object.tree()["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.retain(|c| c["type"] != "Alive");
        let time = polity_kube_rules::time::rfc3339(self.unix());
        all.push(
            json!({"type": "Alive", "status": "True", "reason": format!("Beat{nth}"),
            "message": "", "lastTransitionTime": time}),
        );
        self.user(at, Some("status"), json!({"status": {"conditions": all}}));
    }
}

pub(super) fn device(nth: u64) -> Value {
    json!({"networkName": "lan", "dhcp4": true, "nameservers": [format!("198.51.100.{nth}")]})
}

/// What a person changes of what is wanted.
pub fn edit(at: &Place, nth: u64) -> Value {
    match at.0.as_str() {
        "Machine" => json!({"spec": {"network": {"devices": [device(nth)]}}}),
        "Widget" => json!({"spec": {"source": if nth.is_multiple_of(2) { "site" } else { "other" }}}),
        "Site" => kinds::site::edit(nth),
        "Guest" => kinds::guest::edit(nth),
        _ => json!({"data": {"value": format!("v{nth}")}}),
    }
}

/// An object as a person would create it.
pub fn new_object(at: &Place, nth: u64) -> Value {
    let (api_version, content) = match at.0.as_str() {
        "Machine" => (
            MACHINES,
            json!({"spec": {"template": "ubuntu", "network": {"devices": [device(nth)]}}}),
        ),
        "Widget" => (WIDGETS, json!({"spec": {"source": "site"}})),
        "Site" => (kinds::site::SITES, kinds::site::new_object(nth)),
        "Guest" => (kinds::guest::GUESTS, kinds::guest::new_object(nth)),
        "Pod" => ("v1", json!({"spec": {"nodeName": kinds::site::node(nth)}})),
        _ => ("v1", json!({"data": {"value": format!("v{nth}")}})),
    };
    let mut value =
        json!({"apiVersion": api_version, "kind": at.0, "metadata": {"namespace": at.1, "name": at.2}});
    merge(&mut value, &content);
    debug_assert_eq!(place(&value), *at);
    value
}
