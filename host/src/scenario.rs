//! Scenario files: what happens to the cloud and the objects of an example, and what must hold in the end.

mod course;
mod typo;

use std::sync::Arc;

use anyhow::{Result, anyhow};
use futures::{Stream, StreamExt as _};
use polity_clouds::Millis;
use polity_cluster::Cluster;
use polity_core::binding;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Kind, ListQuery, ObjectRef, Question};
use polity_core::time::Unix;
use polity_sim::Simulated as _;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::binding_objects::is_binding;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::data::Data;
use crate::display::hex;
use crate::install::Target;

use course::Course;
pub use course::{Position, Running};

/// A scenario file. Its times count from the start of the scenario, by the host's clock.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// `polity.dev/v1alpha1`
    pub api_version: String,
    /// `Scenario`
    pub kind: String,
    /// The seed for everything that is random.
    #[serde(default)]
    pub seed: u64,
    /// The speed of the clock, as a multiple of real time; `run --speed` overrides it.
    #[serde(default)]
    pub speed: Option<f64>,
    /// When `--until-settled` gives up.
    #[serde(default)]
    pub deadline: Option<Millis>,
    /// The configuration of the simulated cloud. It replaces the one in the bindings.
    #[serde(default)]
    #[schemars(with = "Option<polity_sim::SimConfig>")]
    pub cloud: Option<Value>,
    /// What happens to objects.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What must hold in the end.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// The digest of the steps as they are written in the file.
    #[serde(skip)]
    digest: String,
}

/// An action of a person or another program. The step waits until `at`, then until `when` holds, then for
/// `after`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// The earliest time of the step.
    #[serde(default)]
    pub at: Option<Millis>,
    /// The condition that must hold once.
    #[serde(default)]
    pub when: Option<Condition>,
    /// The wait after `at` and `when`.
    #[serde(default)]
    pub after: Option<Millis>,
    /// Create this object, or merge it into the object that has its name.
    #[serde(default)]
    pub apply: Option<Value>,
    /// Patch an object.
    #[serde(default)]
    pub patch: Option<Patch>,
    /// Delete an object.
    #[serde(default)]
    #[schemars(with = "Option<Named>")]
    pub delete: Option<ObjectRef>,
}

/// A condition on one value of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// The object, by kind, namespace and name.
    #[schemars(with = "Named")]
    pub object: ObjectRef,
    /// A dotted path. `status.conditions[Ready]` is the condition of that type.
    pub path: String,
    /// The value; without it any value will do.
    #[serde(default)]
    pub equals: Option<Value>,
}

/// An object, as a scenario names it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read as an ObjectRef")]
struct Named {
    /// `v1`, or `group/version`.
    api_version: String,
    /// The kind.
    kind: String,
    /// The namespace, unless the kind has none.
    namespace: Option<String>,
    /// The name.
    name: String,
}

/// A merge patch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// The object, by kind, namespace and name.
    #[schemars(with = "Named")]
    pub object: ObjectRef,
    /// JSON merge patch.
    pub patch: Value,
    /// `status` to patch the status; otherwise the object.
    #[serde(default)]
    pub subresource: Option<String>,
}

/// Something that must hold in the end. An expectation that would hold without any object is refused when it
/// is read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Written")]
#[schemars(!try_from, rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// The expectation in words.
    pub that: String,
    /// Expectations of these objects.
    pub objects: Option<Objects>,
    /// Expectations of the simulated cloud's VMs.
    pub vms: Option<Vms>,
}

/// An expectation as it is written in the file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    that: String,
    #[serde(default)]
    objects: Option<Objects>,
    #[serde(default)]
    vms: Option<Vms>,
}

/// All objects of a kind.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objects {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; without it all namespaces count.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The number of objects. Every expectation states it, because checks of each object also hold if there
    /// is none.
    #[serde(default)]
    pub count: Option<usize>,
    /// Checks that must hold for each object.
    #[serde(default)]
    pub each: Vec<Check>,
}

/// A check of one value. At least one of the three kinds is needed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// A dotted path. `status.conditions[Ready]` is the condition of that type.
    pub path: String,
    /// The value must equal this.
    #[serde(default)]
    pub equals: Option<Value>,
    /// The value must be a list that contains this.
    #[serde(default)]
    pub contains: Option<Value>,
    /// `true`: the value must exist and not be empty. `false`: it must be absent or empty.
    #[serde(default)]
    pub present: Option<bool>,
}

/// The VMs of the simulated cloud.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vms {
    /// Only the VMs of this account.
    #[serde(default)]
    pub account: Option<String>,
    /// How many there are.
    pub count: usize,
    /// Exactly one VM for each object of this kind, by its uid, and no VM without such an object.
    #[serde(default)]
    pub one_for_each: Option<Objects>,
}

impl Scenario {
    /// The schema of a scenario file, with a description of every field.
    pub fn schema() -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        settings
            .into_generator()
            .into_root_schema_for::<Scenario>()
            .to_value()
    }

    /// Reads a scenario from its manifest. `text` is its file, for what is said of a typo.
    pub(crate) fn read(manifest: Value, text: &str) -> Result<Self> {
        let digest = hex(&Sha256::digest(manifest["steps"].to_string()));
        let scenario: Scenario = serde_path_to_error::deserialize(manifest).map_err(|e| {
            let said = format!("{}: {}", e.path(), e.inner());
            anyhow!("{}", typo::explained(&said, text))
        })?;
        Ok(Scenario { digest, ..scenario })
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn speed(&self) -> Option<f64> {
        self.speed
    }

    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    pub(crate) fn cloud(&self) -> Option<&Value> {
        self.cloud.as_ref()
    }

    /// Checks every expectation.
    pub(crate) async fn verdicts(&self, cluster: &Cluster, clouds: &Clouds) -> Result<Vec<Verdict>> {
        let mut verdicts = Vec::new();
        for expectation in &self.expect {
            verdicts.push(expectation.check(cluster, clouds).await?);
        }
        Ok(verdicts)
    }

    /// The bindings that the steps apply, and the patches of bindings.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Value> {
        let of_binding = |patch: &&Patch| {
            let kind = &patch.object.kind;
            (kind.api_version.as_str(), kind.kind.as_str()) == (binding::API_VERSION, binding::KIND)
        };
        self.steps.iter().flat_map(move |step| {
            let applied = step.apply.iter().filter(|object| is_binding(object));
            let patched = step.patch.iter().filter(of_binding).map(|patch| &patch.patch);
            applied.chain(patched)
        })
    }

    /// The position: where an earlier process left the scenario in this data folder, or else its beginning at
    /// `now`.
    pub(crate) fn position(&self, data: Option<&Data>, now: Unix) -> Result<Position> {
        match data {
            Some(data) => Position::resume(&self.digest, &self.steps, data, now),
            None => Ok(Position::beginning(&self.digest, &self.steps, now)),
        }
    }

    /// Starts the scenario from its beginning, without a folder that keeps its position. For tests.
    pub async fn start(
        &self,
        clock: &Arc<Clock>,
        cluster: &Arc<Cluster>,
        target: Target,
        report: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Running {
        let position = Position::beginning(&self.digest, &self.steps, clock.now().unix);
        self.go_on(position, (clock, cluster), target, report, None).await
    }

    /// Continues the scenario from a position. All its conditions are watched before anything else changes the objects.
    pub(crate) async fn go_on(
        &self,
        position: Position,
        (clock, cluster): (&Arc<Clock>, &Arc<Cluster>),
        target: Target,
        report: Arc<dyn Fn(&str) + Send + Sync>,
        data: Option<Arc<Data>>,
    ) -> Running {
        let mut course = Course {
            steps: self.steps.clone(),
            position,
            clock: clock.clone(),
            cluster: cluster.clone(),
            target,
            report,
            data,
        };
        let held = course.watch_conditions().await;
        course.start(held)
    }
}

impl Condition {
    /// Watches the object: whether the condition holds, at first and after each change.
    fn watch(&self, cluster: &Arc<Cluster>) -> impl Stream<Item = bool> + Send {
        let scope = Scope {
            kind: self.object.kind.clone(),
            namespace: self.object.namespace.clone(),
            name: Some(self.object.name.clone()),
            node: None,
            fields: Vec::new(),
        };
        let condition = self.clone();
        cluster.watch(scope).map(move |event| match event {
            WatchEvent::Applied(object) => condition.holds(&object.tree()),
            WatchEvent::Listed { objects, .. } => {
                objects.iter().any(|object| condition.holds(&object.tree()))
            }
            _ => false,
        })
    }

    fn holds(&self, object: &Value) -> bool {
        match (at(object, &self.path), &self.equals) {
            (Some(value), Some(wanted)) => value == wanted,
            (found, None) => found.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// The value at a path; `None` if it is absent or null.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut inside = false;
    let between = |c| {
        inside = c == '[' || (inside && c != ']');
        c == '.' && !inside
    };
    let part = |value: &'a Value, part: &str| match part.strip_suffix(']').and_then(|p| p.split_once('[')) {
        None => value.get(part),
        Some((list, of_type)) => {
            let elements = value.get(list)?.as_array()?;
            elements.iter().find(|element| element["type"] == of_type)
        }
    };
    path.split(between)
        .try_fold(object, part)
        .filter(|value| !value.is_null())
}

fn named(object: &ObjectRef) -> String {
    match &object.namespace {
        Some(namespace) => format!("{} {namespace}/{}", object.kind.kind, object.name),
        None => format!("{} {}", object.kind.kind, object.name),
    }
}

/// The result of checking an expectation.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// The expectation in words.
    pub that: String,
    /// What is wrong; empty if the expectation holds.
    pub wrong: Vec<String>,
}

impl Verdict {
    pub(crate) fn that(&self) -> &str {
        &self.that
    }

    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }
}

impl TryFrom<Written> for Expectation {
    type Error = String;

    fn try_from(Written { that, objects, vms }: Written) -> Result<Self, String> {
        if objects.is_none() && vms.is_none() {
            return Err(format!("{that:?} expects nothing: add objects or vms"));
        }
        if let Some(Objects {
            kind, count: None, ..
        }) = &objects
        {
            return Err(format!(
                "{that:?} would hold without any {kind}: add the number of objects, for example count: 1"
            ));
        }
        let each = objects.iter().flat_map(|objects| &objects.each);
        for Check {
            path,
            equals,
            contains,
            present,
        } in each
        {
            if equals.is_none() && contains.is_none() && present.is_none() {
                return Err(format!(
                    "{that:?} checks nothing of {path}: add equals, contains or present"
                ));
            }
        }
        let unused = |of: &Objects| of.count.is_some() || !of.each.is_empty();
        if vms.iter().filter_map(|vms| vms.one_for_each.as_ref()).any(unused) {
            return Err(format!(
                "{that:?}: remove count and each from oneForEach; the number belongs to vms"
            ));
        }
        Ok(Expectation { that, objects, vms })
    }
}

impl Expectation {
    /// Checks whether the expectation holds.
    pub async fn check(&self, cluster: &Cluster, clouds: &Clouds) -> Result<Verdict> {
        let mut wrong = Vec::new();
        if let Some(objects) = &self.objects {
            let found = objects.list(cluster).await?;
            if let Some(count) = objects.count.filter(|count| *count != found.len()) {
                wrong.push(format!("there are {} {}, not {count}", found.len(), objects.kind));
            }
            for object in &found {
                let failed = objects.each.iter().filter_map(|check| check.wrong(object));
                wrong.extend(failed.map(|why| format!("{} {why}", object["metadata"]["name"])));
            }
        }
        if let Some(vms) = &self.vms {
            wrong.extend(vms.wrong(cluster, clouds).await?);
        }
        Ok(Verdict {
            that: self.that.clone(),
            wrong,
        })
    }
}

impl Objects {
    async fn list(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let question = Question::Objects(ListQuery {
            namespace: self.namespace.clone(),
            latest: true,
            ..ListQuery::all(Kind {
                api_version: self.api_version.clone(),
                kind: self.kind.clone(),
            })
        });
        match cluster.read(&question).await {
            Ok(Value::Array(objects)) => Ok(objects),
            Ok(other) => Err(anyhow!(
                "the API server answered a list of {} with {other}",
                self.kind
            )),
            Err(failure) if failure.code == Code::NotFound => Ok(Vec::new()),
            Err(failure) => Err(anyhow!("{failure}")),
        }
    }
}

impl Check {
    fn wrong(&self, object: &Value) -> Option<String> {
        let found = at(object, &self.path);
        let shown = found.cloned().unwrap_or(Value::Null);
        if let Some(wanted) = &self.equals
            && found != Some(wanted)
        {
            return Some(format!("{} is {shown}, not {wanted}", self.path));
        }
        if let Some(wanted) = &self.contains
            && !found
                .and_then(Value::as_array)
                .is_some_and(|list| list.contains(wanted))
        {
            return Some(format!("{} is {shown}, without {wanted}", self.path));
        }
        let empty = |v: &Value| *v == json!([]) || *v == json!({}) || *v == json!("");
        match self.present {
            Some(present) if found.is_some_and(|v| !empty(v)) != present => {
                Some(format!("{} is {shown}", self.path))
            }
            _ => None,
        }
    }
}

impl Vms {
    async fn wrong(&self, cluster: &Cluster, clouds: &Clouds) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let all = clouds.all();
        let Some(cloud) = all.iter().find_map(|cloud| cloud.simulation()) else {
            return Ok(vec!["no simulated cloud is open".into()]);
        };
        let mut vms = cloud.inspect(|sim, now| sim.vms(now));
        vms.retain(|vm| self.account.is_none() || vm.account == self.account);
        if vms.len() != self.count {
            let of = self
                .account
                .as_ref()
                .map_or_else(String::new, |account| format!(" in {account}"));
            wrong.push(format!("there are {} VMs{of}, not {}", vms.len(), self.count));
        }
        let Some(objects) = &self.one_for_each else {
            return Ok(wrong);
        };
        let owners = objects.list(cluster).await?;
        for owner in &owners {
            let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
            let count = vms.iter().filter(|vm| vm.owner == uid).count();
            if count != 1 {
                wrong.push(format!("{} has {count} VMs, not 1", owner["metadata"]["name"]));
            }
        }
        let orphans = vms
            .iter()
            .filter(|vm| !owners.iter().any(|o| o["metadata"]["uid"] == *vm.owner));
        wrong.extend(orphans.map(|vm| format!("VM {} belongs to no {}", vm.name, objects.kind)));
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bindings_of_the_course_are_known_before_it_begins() {
        let binding =
            json!({"apiVersion": binding::API_VERSION, "kind": binding::KIND, "metadata": {"name": "a"}});
        let patch = json!({"spec": {"policies": {}}});
        let of = |kind: &str, api_version: &str| {
            let object = json!({"apiVersion": api_version, "kind": kind, "name": "a"});
            json!({"patch": {"object": object, "patch": patch}})
        };
        let scenario: Scenario = serde_json::from_value(json!({
            "apiVersion": "polity.dev/v1alpha1", "kind": "Scenario",
            "steps": [
                {"apply": binding},
                {"apply": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}},
                of(binding::KIND, binding::API_VERSION),
                of("Namespace", "v1"),
            ],
        }))
        .expect("a scenario");
        assert_eq!(scenario.bindings().collect::<Vec<_>>(), [&binding, &patch]);
    }

    /// The error about a scenario with this expectation.
    fn said_of(expectation: &Value) -> String {
        let scenario =
            json!({"apiVersion": "polity.dev/v1alpha1", "kind": "Scenario", "expect": [expectation]});
        serde_json::from_value::<Scenario>(scenario).map_or_else(|e| e.to_string(), |_| String::new())
    }

    #[test]
    fn an_expectation_that_would_hold_of_nothing_is_refused() {
        let objects = |more: Value| {
            let mut objects = json!({"apiVersion": "v1", "kind": "Node"});
            objects
                .as_object_mut()
                .expect("fields")
                .extend(more.as_object().cloned().unwrap_or_default());
            objects
        };
        let ready = json!([{"path": "status.phase", "equals": "Ready"}]);
        for (expectation, wanted) in [
            (json!({}), "add objects or vms"),
            (
                json!({"objects": objects(json!({"each": ready}))}),
                "without any Node: add the number",
            ),
            (
                json!({"objects": objects(json!({"count": 1, "each": [{"path": "a"}]}))}),
                "checks nothing of a",
            ),
            (
                json!({"vms": {"count": 1, "oneForEach": objects(json!({"count": 1}))}}),
                "remove count and each from oneForEach",
            ),
            (json!({"vms": {"count": 1, "oneForEach": objects(json!({}))}}), ""),
            (json!({"objects": objects(json!({"count": 0}))}), ""),
            (
                json!({"objects": objects(json!({"count": 2, "each": ready}))}),
                "",
            ),
        ] {
            let mut expectation = expectation;
            expectation["that"] = "all is well".into();
            let said = said_of(&expectation);
            assert!(said.contains(wanted), "{expectation}: {said}");
            assert_eq!(said.is_empty(), wanted.is_empty(), "{expectation}: {said}");
        }
    }

    #[test]
    fn a_path_leads_to_a_condition_by_its_type() {
        let conditions = json!([
            {"type": "Ready", "status": "True"}, {"type": "polity.dev/Slowed", "status": "False"},
        ]);
        let object = json!({"status": {"phase": null, "conditions": conditions}, "spec": {"n": 1}});
        let found = |path| at(&object, path).cloned();
        assert_eq!(found("spec.n"), Some(json!(1)));
        assert_eq!(found("status.conditions[Ready].status"), Some(json!("True")));
        assert_eq!(
            found("status.conditions[polity.dev/Slowed].status"),
            Some(json!("False"))
        );
        for nothing in [
            "status.phase",
            "status.conditions[Other]",
            "spec[Ready]",
            "spec.n.m",
        ] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
    }
}
