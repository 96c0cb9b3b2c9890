//! A scenario under way: objects, the host that governs them, and functions to act and to look as a person does. Most
//! scenarios are about one object. A [`Backend`] says on which API server and clock the scenario runs.

use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::call::Write;
use polity_core::contract::{Act, ObjectDelete, ObjectRef, Precondition, Request};
use polity_core::object::Object;
use polity_core::projection;
use polity_core::record::PassRecord;
use polity_sim::{Millis, VmView};
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Host, Site};

/// Between two looks at something awaited.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One object and its host.
pub struct Story {
    /// What outlives the host.
    pub site: Site,
    /// The host; replaced where the story says that it crashes.
    pub host: Host,
    /// How long something is awaited that does not come.
    pub patience: Duration,
    object: ObjectRef,
    /// Passes of hosts that ended.
    before: Vec<PassRecord>,
}

impl Story {
    /// A host with these bindings, on a cloud like this. `object` is the one that the story is about; it is created
    /// later.
    pub async fn begin(on: &dyn Backend, sim: Value, bindings: Vec<Value>, object: &Value) -> Self {
        Story::begin_among(on, sim, bindings, Vec::new(), object).await
    }

    /// The same, where these objects are there before the host.
    pub async fn begin_among(
        on: &dyn Backend,
        sim: Value,
        bindings: Vec<Value>,
        objects: Vec<Value>,
        object: &Value,
    ) -> Self {
        let site = on.site(sim).await;
        let manifests = Manifests {
            bindings,
            objects,
            ..Manifests::default()
        };
        site.apply(&manifests).await;
        on.allow(&site, &manifests.bindings).await;
        Story {
            host: site.start(),
            site,
            patience: on.patience(),
            object: Object::new(object.clone()).reference(),
            before: Vec::new(),
        }
    }

    /// Somebody creates an object.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn create(&self, object: &Value) {
        self.site
            .cluster
            .apply(object)
            .await
            .expect("the object is created");
    }

    /// The object as it stands; null once it is gone.
    pub async fn object(&self) -> Value {
        self.site.get(&self.object).await.unwrap_or_default()
    }

    /// Somebody merges this into the object.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn edit(&self, patch: Value) {
        self.patch(None, patch).await;
    }

    /// Somebody merges this into the object's status.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn edit_status(&self, patch: Value) {
        self.patch(Some("status"), json!({"status": patch})).await;
    }

    /// Somebody asks for a pass.
    pub async fn request(&self, nonce: &str) {
        self.edit(json!({"metadata": {"annotations": {"request.polity.dev/look": nonce}}}))
            .await;
    }

    async fn patch(&self, subresource: Option<&str>, patch: Value) {
        let write = Write::Patch {
            object: self.object.clone(),
            subresource: subresource.map(str::to_owned),
            precondition: None,
            patch,
        };
        self.site.cluster.write(&write).await.expect("the patch is taken");
    }

    /// Somebody deletes the object.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn delete(&self) {
        let uid = self.object().await["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let delete = ObjectDelete {
            object: self.object.clone(),
            precondition: Precondition {
                uid,
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        let deleted = self.site.cluster.write(&Write::Act(Act::Delete(delete))).await;
        deleted.expect("the object is deleted");
    }

    /// The host is killed, and its supervisor starts another.
    pub async fn crash(&mut self) {
        let new = self.site.start();
        let old = std::mem::replace(&mut self.host, new);
        self.before.extend(old.passes_of(&self.object.name));
        old.crash().await;
    }

    /// Starts another host if this one has ended by itself: whether it had.
    pub async fn supervise(&mut self) -> bool {
        let ended = self.host.has_ended();
        if ended {
            self.crash().await;
        }
        ended
    }

    /// The host is killed; another starts after `meanwhile`.
    pub async fn without_a_host(&mut self, meanwhile: impl AsyncFnOnce(&Story)) {
        self.host.kill();
        meanwhile(self).await;
        self.crash().await;
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until this holds of the object.
    ///
    /// # Panics
    /// If it never does.
    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = tokio::time::Instant::now() + self.patience;
        let mut changes = self.site.changes();
        loop {
            if changes.any() {
                let object = self.object().await;
                if holds(&object) {
                    return object;
                }
            }
            if tokio::time::Instant::now() >= end {
                panic!("{what}: not so: {:#}", self.object().await);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a value of the object is this.
    pub async fn until_is(&self, at: &str, wanted: impl Into<Value>) -> Value {
        let wanted = wanted.into();
        let holds = |object: &Value| projection::get(object, at) == Some(&wanted);
        self.until(&format!("{at} is {wanted}"), holds).await
    }

    /// Waits until the cloud's VMs are so.
    ///
    /// # Panics
    /// If they never are.
    pub async fn until_vms(&self, holds: impl Fn(&[VmView]) -> bool) -> Vec<VmView> {
        let end = tokio::time::Instant::now() + self.patience;
        loop {
            let vms = self.site.vms();
            if holds(&vms) {
                return vms;
            }
            assert!(tokio::time::Instant::now() < end, "the VMs are {vms:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the passes of the object so far are so.
    ///
    /// # Panics
    /// If they never are.
    pub async fn until_passes(&self, holds: impl Fn(&[PassRecord]) -> bool) {
        let end = tokio::time::Instant::now() + self.patience;
        let mut seen = None;
        loop {
            let ended = self.host.ended();
            if seen != Some(ended) && holds(&self.passes()) {
                return;
            }
            seen = Some(ended);
            assert!(
                tokio::time::Instant::now() < end,
                "the passes were {:?}",
                self.edges()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no pass of the host is in flight.
    ///
    /// # Panics
    /// If one always is, or the host has stopped.
    pub async fn between_passes(&self) {
        between_passes(&[&self.host], self.patience).await;
    }

    /// Waits until everything is settled.
    ///
    /// # Panics
    /// If it never is.
    pub async fn settles(&self) {
        let stuck = self
            .site
            .settles(&self.host, None, Millis::seconds(self.patience.as_secs()))
            .await;
        assert!(stuck.is_empty(), "stuck: {}", stuck.join("; "));
    }

    /// The object's passes so far, of all hosts.
    pub fn passes(&self) -> Vec<PassRecord> {
        let mut all = self.before.clone();
        all.extend(self.host.passes_of(&self.object.name));
        all
    }

    /// The edges noted by each pass, without the prefix of the specification.
    pub fn edges(&self) -> Vec<String> {
        self.passes().iter().map(edges).collect()
    }

    /// The reasons of all Events that policies told, in order.
    pub fn events(&self) -> Vec<String> {
        let passes = self.passes();
        let roles = passes.iter().flat_map(|pass| &pass.roles);
        let conclusions = roles.filter_map(|role| role.conclusion.as_ref());
        let events = conclusions.flat_map(|conclusion| &conclusion.events);
        events.map(|event| event.reason.clone()).collect()
    }

    /// Every change of the cloud that was asked for, in order, answered or not.
    pub fn acts(&self) -> Vec<String> {
        let passes = self.passes();
        let entries = passes
            .iter()
            .flat_map(|pass| &pass.roles)
            .flat_map(|role| &role.journal);
        entries
            .filter_map(|entry| match &entry.request {
                Request::Act(act @ (Act::Cloud(_) | Act::Revoke(_))) => Some(act.operation().to_owned()),
                _ => None,
            })
            .collect()
    }
}

/// Waits until no pass of these hosts is in flight. A watch shows what a pass wrote before the pass has ended, so that a
/// host's passes may lack it until then.
///
/// # Panics
/// If one always is, or a host has stopped.
pub async fn between_passes(hosts: &[&Host], patience: Duration) {
    let end = tokio::time::Instant::now() + patience;
    loop {
        let mut in_flight = 0;
        for host in hosts {
            in_flight += host.handle.view().await.expect("the host runs").passes;
        }
        if in_flight == 0 {
            return;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "{in_flight} passes are in flight"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The edges that a pass noted: `03 11 12`.
pub fn edges(pass: &PassRecord) -> String {
    let short = |id: &str| id.split_once('-').map_or(id, |(_, number)| number).to_owned();
    pass.notes().map(short).collect::<Vec<_>>().join(" ")
}
