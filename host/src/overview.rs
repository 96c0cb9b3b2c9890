//! How every object stands after its last pass: what `run` shows live, what `get` and `top` read from a
//! recording, and what decides whether everything is settled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_core::contract::{Manifest, Next};
use polity_core::key::Key;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::Now;
use polity_kube_rules::{deletion, merge_patch, text};
use serde_json::Value;

use crate::display::{SHOWN, Then, shortened, then};
use crate::edges;

/// The last pass of each object.
#[derive(Default)]
pub struct Overview {
    objects: Mutex<BTreeMap<Key, Standing>>,
}

/// How an object stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The kind and its group.
    pub(crate) kind: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) phase: String,
    pub(crate) state: State,
    /// What happened last, in the words of the policy; empty if no pass had anything to tell.
    pub(crate) event: String,
    /// What follows the last pass.
    pub(crate) then: Then,
    /// When the last pass ended.
    pub(crate) ended: Now,
    pub(crate) costs: Costs,
}

/// What came of an object's last pass. The order is that in which a person wants to know of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// A policy broke its contract.
    Quarantined,
    /// It failed, and is tried again.
    Retrying,
    /// There is more to do.
    Working,
    /// The identity policy denied it.
    Denied,
    /// All is done.
    Settled,
    /// The object is let go.
    Released,
}

impl State {
    /// The state in one word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            State::Quarantined => "quarantined",
            State::Retrying => "retrying",
            State::Working => "working",
            State::Denied => "denied",
            State::Settled => "settled",
            State::Released => "released",
        }
    }

    /// Whether nothing is left to do until something changes.
    pub(crate) fn is_at_rest(self) -> bool {
        self >= State::Denied
    }

    fn after(record: &PassRecord) -> Self {
        match (&record.outcome, &record.next) {
            (Outcome::Faulted | Outcome::Bug(_), _) => State::Quarantined,
            (Outcome::Published | Outcome::Denied | Outcome::Released, _) if is_released(record) => {
                State::Released
            }
            // An identity policy that failed, and is asked again.
            (Outcome::Denied, Some(Next::Retry { failure: Some(_), .. })) => State::Retrying,
            (Outcome::Denied, _) => State::Denied,
            (Outcome::Published, Some(Next::Settled(_))) => State::Settled,
            (Outcome::Failed(_), _) | (Outcome::Published, Some(Next::Retry { .. })) => State::Retrying,
            _ => State::Working,
        }
    }
}

/// What all passes of an object cost.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Costs {
    pub(crate) passes: u64,
    pub(crate) steps: u64,
    pub(crate) fuel: u64,
    /// Requests to the cluster and to clouds.
    pub(crate) requests: u64,
    /// Passes that failed or faulted.
    pub(crate) failures: u64,
    /// The time from the beginning to the end of each pass.
    #[serde(
        rename = "milliseconds",
        serialize_with = "polity_core::time::as_millis::serialize"
    )]
    pub(crate) time: Duration,
}

impl Costs {
    fn add(&mut self, record: &PassRecord, state: State) {
        self.passes += 1;
        for role in &record.roles {
            self.steps += u64::from(role.steps);
            self.fuel = self.fuel.saturating_add(role.fuel);
            self.requests += role.journal.len() as u64;
        }
        self.failures += u64::from(matches!(state, State::Quarantined | State::Retrying));
        self.time = self.time.saturating_add(record.ended.boot - record.started.boot);
    }
}

impl Standing {
    /// What went wrong in the last pass; otherwise what happened last.
    pub(crate) fn last_event(&self) -> &str {
        let told = Some(&*self.event).filter(|event| !event.is_empty());
        self.then.why.as_deref().or(told).unwrap_or("-")
    }
}

impl Overview {
    /// Takes in a pass that ended, and returns how the object stands now. The manifests of policies are known by their
    /// digests. Of long texts the beginning is kept.
    pub fn passed(&self, record: &PassRecord, manifests: &BTreeMap<String, Manifest>) -> Standing {
        let state = State::after(record);
        let phase = shortened(&Documents::of(record).phase(record, manifests), SHOWN);
        let event = edges::event(record, manifests).map(|event| shortened(event, SHOWN));
        let (kind, group) = (&record.kind.kind, record.kind.api_version.split_once('/'));
        let mut objects = self.lock();
        let before = objects.remove(&record.key);
        let mut then = then(record);
        then.why = then.why.map(|why| shortened(&why, SHOWN));
        let (kind, group, mut costs, before) = match before {
            Some(before) => (before.kind, before.group, before.costs, before.event),
            None => {
                let group = group.map_or("", |(group, _)| group);
                (
                    kind.as_str().into(),
                    group.into(),
                    Costs::default(),
                    String::new(),
                )
            }
        };
        // What happened before a failure is over, and what happened before a pass that had nothing to tell is not.
        let event = event.unwrap_or(if then.why.is_none() { before } else { String::new() });
        costs.add(record, state);
        let standing = Standing {
            kind,
            group,
            phase,
            state,
            event,
            then,
            ended: record.ended,
            costs,
        };
        objects.insert(record.key.clone(), standing.clone());
        standing
    }

    /// Whether the object is known already, or one of so many.
    pub(crate) fn has_room(&self, key: &Key, most: usize) -> bool {
        let objects = self.lock();
        objects.len() < most || objects.contains_key(key)
    }

    /// Forgets an object that is gone or no longer governed.
    pub fn forgotten(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Whether an object is settled, denied or released; if not, what follows its last pass. `None` if it had
    /// no pass.
    pub(crate) fn is_at_rest(&self, key: &Key) -> Option<Result<(), Then>> {
        let objects = self.lock();
        let standing = objects.get(key)?;
        Some(if standing.state.is_at_rest() {
            Ok(())
        } else {
            Err(standing.then.clone())
        })
    }

    /// The objects that are at rest and not settled, for the sentence that everything is settled.
    pub(crate) fn not_settled(&self) -> String {
        let objects = self.objects();
        let of = |state: State| {
            let names = objects.iter().filter(|(_, standing)| standing.state == state);
            let names = names.map(|(key, standing)| format!("{} {key}", standing.kind));
            let names: Vec<String> = names.collect();
            (!names.is_empty()).then(|| format!(", or {}: {}", state.as_str(), names.join(", ")))
        };
        [State::Denied, State::Released]
            .into_iter()
            .filter_map(of)
            .collect()
    }

    /// Every object, in the order of bindings, namespaces and names.
    pub(crate) fn objects(&self) -> Vec<(Key, Standing)> {
        let objects = self.lock();
        let all = objects.iter();
        all.map(|(key, standing)| (key.clone(), standing.clone()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Standing>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a pass that was published let the object go: its identity policy released it, or nothing keeps the deleted object
/// any more.
pub(crate) fn is_released(record: &PassRecord) -> bool {
    record.outcome == Outcome::Released || Documents::of(record).is_released()
}

/// The texts of an object and of what a pass wrote to it: the newest is the last.
struct Documents<'a>(Vec<&'a str>);

impl<'a> Documents<'a> {
    fn of(record: &'a PassRecord) -> Self {
        let conclusions = record.roles.iter().filter_map(|role| role.conclusion.as_ref());
        let patches = conclusions.filter_map(|conclusion| conclusion.patch.as_deref());
        Documents(record.object.as_deref().into_iter().chain(patches).collect())
    }

    /// Whether nothing keeps the object any more that is being deleted.
    fn is_released(&self) -> bool {
        let Some((object, patches)) = self.0.split_first() else {
            return false;
        };
        // Most objects are not being deleted, and need no tree.
        if text::at(object, "metadata.deletionTimestamp").is_none() {
            return false;
        }
        let mut object = text::tree(object);
        for patch in patches {
            merge_patch::apply(&text::tree(patch), &mut object);
        }
        deletion::is_released(&object)
    }

    /// The phase of the object.
    fn phase(&self, record: &PassRecord, manifests: &BTreeMap<String, Manifest>) -> String {
        let policies = record.roles.iter().map(|role| &*role.policy.0);
        let crds = policies
            .filter_map(|id| manifests.get(id))
            .flat_map(Manifest::crds);
        let at = phase_path(&record.kind.kind, crds);
        let newest = self
            .0
            .iter()
            .rev()
            .find_map(|document| text::str_at(document, at));
        newest.map_or_else(|| "-".to_owned(), Cow::into_owned)
    }
}

/// The path of a kind's phase: the path that its definition names for kubectl's column `Phase`.
fn phase_path<'a>(kind: &str, crds: impl Iterator<Item = &'a Value>) -> &'a str {
    let all = |value: &'a Value| value.as_array().into_iter().flatten();
    crds.filter(|crd| crd["spec"]["names"]["kind"] == *kind)
        .flat_map(|crd| all(&crd["spec"]["versions"]))
        .flat_map(|version| all(&version["additionalPrinterColumns"]))
        .find(|column| column["name"] == "Phase")
        .and_then(|column| column["jsonPath"].as_str())
        .map_or("status.phase", |path| path.trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::tests::pass;
    use serde_json::json;

    #[test]
    fn what_happened_last_stays_until_a_pass_tells_something_else_or_fails() {
        let (overview, none) = (Overview::default(), BTreeMap::new());
        let events = [&["B"][..], &[], &["C"]].map(|notes| {
            let standing = overview.passed(&pass(notes, "published", false), &none);
            standing.last_event().to_owned()
        });
        assert_eq!(events, ["B", "B", "C"]);
        let faulted = overview.passed(&pass(&["D"], "faulted", false), &none);
        assert_eq!(faulted.last_event(), "quarantined");
        assert_eq!(overview.not_settled(), "");
        overview.passed(&pass(&[], "denied", false), &none);
        assert_eq!(overview.not_settled(), ", or denied: Machine a/one");
    }

    #[test]
    fn times_and_texts_that_no_host_writes_are_counted_and_cut() {
        let (overview, none) = (Overview::default(), BTreeMap::new());
        let mut record = pass(&[&"x".repeat(5_000)], "published", false);
        record.ended.boot = polity_core::time::Boot::MAX;
        record.outcome = Outcome::Bug("y".repeat(5_000));
        record.object = Some(json!({"status": {"phase": "z".repeat(5_000)}}).to_string().into());
        for _ in 0..1_100 {
            overview.passed(&record, &none);
        }
        let (_, standing) = overview.objects().remove(0);
        assert_eq!(
            (standing.costs.passes, standing.costs.time),
            (1_100, Duration::MAX)
        );
        for text in [&standing.event, &standing.phase, standing.last_event()] {
            assert_eq!(text.chars().count(), SHOWN + 1, "{text:.20}");
        }
    }

    #[test]
    fn an_object_is_released_once_neither_a_finalizer_nor_its_grace_period_keeps_it() {
        let deleting = |grace: u64| {
            let begun = "2026-01-01T00:00:00Z";
            json!({"metadata": {"deletionTimestamp": begun, "deletionGracePeriodSeconds": grace, "finalizers": ["a/x"]}})
        };
        let without = || json!({"metadata": {"finalizers": null}});
        for (documents, is_released) in [
            (vec![], false),
            (vec![without()], false),
            (vec![deleting(0)], false),
            (vec![deleting(0), without()], true),
            (
                vec![deleting(0), without(), json!({"status": {"phase": "Gone"}})],
                true,
            ),
            (vec![deleting(30), without()], false),
        ] {
            let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
            let documents = Documents(texts.iter().map(String::as_str).collect());
            assert_eq!(documents.is_released(), is_released, "{texts:?}");
        }
    }

    #[test]
    fn the_phase_stands_where_the_definition_of_the_kind_says() {
        let crd = |kind: &str, column: &str| {
            let columns =
                json!([{"name": "Age", "jsonPath": ".x"}, {"name": column, "jsonPath": ".status.at.phase"}]);
            json!({"spec": {"names": {"kind": kind}, "versions": [{"additionalPrinterColumns": columns}]}})
        };
        let crds = [
            crd("Class", "Phase"),
            crd("Machine", "Phase"),
            crd("Safety", "Frozen"),
        ];
        assert_eq!(phase_path("Machine", crds.iter()), "status.at.phase");
        assert_eq!(phase_path("Safety", crds.iter()), "status.phase");
        assert_eq!(phase_path("Router", crds.iter()), "status.phase");
    }
}
