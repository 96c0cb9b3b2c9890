//! The fixture of these scenarios: three accounts, the principals that may assume roles in them, the bindings, and the
//! objects of a tenant.

use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::projection;
use polity_core::record::PassRecord;
use polity_sim::{Effect, VmView};
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::backend::Backend;
pub(crate) use polity_tests::host_harness::capa::CAPA;
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::host_harness::{capa, mcm, seeds};
use polity_tests::passes::edges_of;
pub(crate) use polity_tests::passes::{calls, lifecycle_ran, session};
use polity_tests::simulation::bindings::MACHINES;
use serde_json::{Value, json};

pub(crate) const CONTROLLER: &str = "AWSClusterControllerIdentity";
pub(crate) const STATIC: &str = "AWSClusterStaticIdentity";
pub(crate) const ROLE: &str = "AWSClusterRoleIdentity";

/// The account of the host's own credentials.
pub(crate) const HOST: &str = "111111111111";
/// The tenant's.
pub(crate) const TEAM: &str = "222222222222";

/// A role that the host may assume, one that only the first may assume, and one of the other account.
pub(crate) const INNER: &str = "arn:aws:iam::222222222222:role/inner";
pub(crate) const OUTER: &str = "arn:aws:iam::222222222222:role/outer";
pub(crate) const AWAY: &str = "arn:aws:iam::333333333333:role/away";

/// Between two looks at something awaited, and how many there are: an hour of the world.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOKS: u32 = 5 * 3_600;

/// The conditions of `capa-identity`.
pub(crate) const ALLOWED: &str = "PrincipalUsageAllowed";
pub(crate) const RETRIEVED: &str = "PrincipalCredentialRetrieved";
pub(crate) const ACCOUNT: &str = "AccountMatches";

/// A cloud that answers at once and hides nothing, with its accounts. What `overrides` names is put in place of that.
fn cloud(overrides: &Value) -> Value {
    let (host, instant) = (format!("arn:aws:iam::{HOST}:role/controller"), "10ms");
    let key = |id: &str, user: &str| json!({"id": id, "account": TEAM, "arn": format!("arn:aws:iam::{TEAM}:user/{user}")});
    let short = json!({"min": "2s", "max": "2s"});
    let mut cloud = json!({
        "identity": {
            "host": {"account": HOST, "arn": host},
            "accessKeys": [key("AKIAFIRST", "first"), key("AKIASECOND", "second")],
            "roles": [
                {"arn": INNER, "trusts": [host]},
                {"arn": OUTER, "trusts": [INNER]},
                {"arn": AWAY, "trusts": [host]},
                {
                    "arn": format!("arn:aws:iam::{TEAM}:role/pods"),
                    "webIdentity": {"namespaces": ["team"], "audience": "sts"},
                },
            ],
        },
        "lag": "0ms", "answers": {"min": instant, "max": instant}, "queue": {"min": "0ms", "max": "0ms"},
        "dhcp": short, "machines": {"boot": short, "join": short},
        "tasks": {"clone": short, "reconfigure": short, "powerOn": short, "powerOff": short, "destroy": short},
    });
    polity_tests::simulation::store::merge(&mut cloud, overrides);
    cloud
}

/// A host that judges AWSClusters, and the namespaces of the tenant, of another one, and of the controller.
pub(crate) async fn begin(on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    begin_with(on, overrides, clusters(configuration)).await
}

/// As [`begin`], with another binding.
pub(crate) async fn begin_with(on: &dyn Backend, overrides: Value, binding: Value) -> Story {
    let namespaces = ["capa-system", "team", "rivals"].map(|name| namespace(name, "prod"));
    let about = cluster(None);
    Story::begin_among(on, cloud(&overrides), vec![binding], namespaces.into(), &about).await
}

/// Another binding beside that of AWSClusters.
pub(crate) async fn bind(story: &Story, binding: Value) {
    let manifests = Manifests {
        bindings: vec![binding],
        ..Manifests::default()
    };
    story.site.apply(&manifests).await;
}

/// The AWSClusters' own binding.
fn clusters(configuration: Value) -> Value {
    judged_alone("AWSCluster", configuration)
}

/// A binding of one of the kinds of `capa-identity`: no other policy beside it.
pub(crate) fn judged_alone(kind: &str, configuration: Value) -> Value {
    let binding = json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": kind.to_lowercase()},
        "spec": {
            "governs": {"apiVersion": CAPA, "kind": kind}, "policies": {}, "cloud": {"name": "sim"}, "grants": [],
        },
    });
    guarded(binding, configuration)
}

/// The binding of another team, with `capa-identity` before its lifecycle.
pub(crate) fn guarded(mut binding: Value, configuration: Value) -> Value {
    let spec = &mut binding["spec"];
    spec["policies"]["identity"] = json!({"file": "capa_identity.wasm", "configuration": configuration});
    if spec.get("cloud").is_none() {
        spec["cloud"] = json!({"name": "sim"});
    }
    let grants = spec["grants"].as_array_mut().expect("a list of grants");
    grants.extend(capa::grants());
    binding
}

/// The Machines of `capv-machine`, guarded.
pub(crate) fn capv_machines(configuration: Value) -> Value {
    guarded(seeds::binding(), configuration)
}

/// The Machines of `mcm-machine`, guarded.
pub(crate) fn mcm_machines(configuration: Value) -> Value {
    guarded(mcm::machines(json!({"safety": ""})), configuration)
}

pub(crate) fn namespace(name: &str, env: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"env": env}}})
}

/// The cluster of the tenant, which Cluster API made, with this identity.
pub(crate) fn cluster(identity: Option<(&str, &str)>) -> Value {
    cluster_named("c-1", identity)
}

pub(crate) fn cluster_named(name: &str, identity: Option<(&str, &str)>) -> Value {
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": "uid-capi", "controller": true,
    });
    let mut cluster = json!({
        "apiVersion": CAPA, "kind": "AWSCluster",
        "metadata": {"namespace": "team", "name": name, "ownerReferences": [owner]},
        "spec": {"region": "eu-central-1"},
    });
    if let Some(identity) = identity {
        cluster["spec"]["identityRef"] = refer(identity);
    }
    cluster
}

pub(crate) fn refer((kind, name): (&str, &str)) -> Value {
    json!({"kind": kind, "name": name})
}

/// A Machine of `capv-machine` in the tenant's cluster.
pub(crate) fn capv_machine() -> Value {
    json!({
        "apiVersion": MACHINES, "kind": "Machine",
        "metadata": {"namespace": "team", "name": "m-1", "labels": {"cluster.x-k8s.io/cluster-name": "c-1"}},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "net", "dhcp4": true}]}},
    })
}

/// A Machine of `mcm-machine` in the tenant's cluster.
pub(crate) fn mcm_machine() -> Value {
    let mut machine = mcm::machine("m-1");
    machine["metadata"]["namespace"] = "team".into();
    machine["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = "c-1".into();
    machine
}

/// What it is made from.
pub(crate) fn mcm_belongings() -> Vec<Value> {
    let mut own = [mcm::class(), mcm::user_data("#cloud-config\nruncmd: []")];
    for object in &mut own {
        object["metadata"]["namespace"] = "team".into();
    }
    own.into()
}

/// An identity; whatever `spec` does not say of that, every namespace may use it.
pub(crate) fn identity(kind: &str, name: &str, spec: Value) -> Value {
    let mut all = json!({"allowedNamespaces": {}});
    polity_tests::simulation::store::merge(&mut all, &spec);
    if spec.get("allowedNamespaces").is_some() {
        all["allowedNamespaces"] = spec["allowedNamespaces"].clone();
    }
    json!({"apiVersion": CAPA, "kind": kind, "metadata": {"name": name}, "spec": all})
}

/// The identity of a role that is assumed from this one; none: from the host's own credentials.
pub(crate) fn role(name: &str, arn: &str, source: Option<(&str, &str)>) -> Value {
    let mut spec = json!({"roleARN": arn});
    if let Some(source) = source {
        spec["sourceIdentityRef"] = refer(source);
    }
    identity(ROLE, name, spec)
}

/// The identity `keys` of the tenant alone.
pub(crate) fn keys(allowed: Value) -> Value {
    identity(
        STATIC,
        "keys",
        json!({"secretRef": {"name": "access-key"}, "allowedNamespaces": allowed}),
    )
}

/// Its Secret, with one of the cloud's keys.
pub(crate) fn access_key(id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "capa-system", "name": "access-key"},
        "stringData": {"AccessKeyID": id, "SecretAccessKey": "hunter2"},
    })
}

/// The tenant's cluster with the keys of a Secret.
pub(crate) async fn with_keys(on: &dyn Backend, overrides: Value) -> Story {
    let story = begin(on, overrides, json!({})).await;
    story.create(&access_key("AKIAFIRST")).await;
    story.create(&keys(json!({"list": ["team"]}))).await;
    story.create(&cluster(Some((STATIC, "keys")))).await;
    passes(&story, 1).await;
    story
}

/// The identities `outer`, which is assumed from `inner`, which the host assumes by itself.
pub(crate) async fn chain(story: &Story) {
    story.create(&identity(CONTROLLER, "default", json!({}))).await;
    story
        .create(&role("inner", INNER, Some((CONTROLLER, "default"))))
        .await;
    story.create(&role("outer", OUTER, Some((ROLE, "inner")))).await;
}

/// The tenant's cluster with the end of that chain.
pub(crate) async fn chained(on: &dyn Backend, configuration: Value) -> Story {
    let story = begin(on, json!({}), configuration).await;
    chain(&story).await;
    story.create(&cluster(Some((ROLE, "outer")))).await;
    passes(&story, 1).await;
    story
}

/// Waits until the cluster has had so many passes, and settles.
pub(crate) async fn passes(story: &Story, count: usize) -> Vec<PassRecord> {
    story.until_passes(|passes| passes.len() >= count).await;
    story.settles().await;
    story.passes()
}

/// Somebody asks for another pass of the cluster; its edges.
pub(crate) async fn again(story: &Story, nonce: &str) -> String {
    let before = story.passes().len();
    story.request(nonce).await;
    let passes = passes(story, before + 1).await;
    passes.last().map(judged).unwrap_or_default()
}

/// Somebody merges this into an object of `capa-identity`, or whichever is named.
pub(crate) async fn edit(story: &Story, of: &Value, patch: Value) {
    let taken = story.site.patch(&named(of), None, patch).await;
    taken.expect("the patch is taken");
}

/// Somebody deletes an object.
pub(crate) async fn delete(story: &Story, of: &Value) {
    story.site.delete(&named(of), None).await.expect("it is deleted");
}

/// An object as it stands; null once it is gone.
pub(crate) async fn get(story: &Story, of: &Value) -> Value {
    story.site.get(&named(of)).await.unwrap_or_default()
}

fn named(object: &Value) -> polity_core::contract::ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    reference(&text(&object["apiVersion"]), &kind, namespace, &name)
}

/// All there is in any account, and all that ever happened there.
pub(crate) fn accounts(story: &Story) -> (Vec<VmView>, Vec<Effect>) {
    (story.site.vms(), story.site.effects())
}

/// Status and reason of a condition.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    condition_of(object, kind).map_or(Value::Null, |condition| {
        json!([condition["status"], condition["reason"]])
    })
}

/// The edges of `capa-identity` that a pass took: `01 02 N2`.
pub(crate) fn judged(pass: &PassRecord) -> String {
    edges_of(pass, "CAPA-")
}

/// An object beside the cluster that the story is about.
pub(crate) struct Watched<'a> {
    story: &'a Story,
    like: Value,
}

impl<'a> Watched<'a> {
    /// The one that this was, or will be, created as.
    pub(crate) fn new(story: &'a Story, like: Value) -> Self {
        Watched { story, like }
    }

    /// Somebody creates it.
    pub(crate) async fn create(&self) {
        self.story.create(&self.like).await;
    }

    /// As it stands; null once it is gone.
    pub(crate) async fn object(&self) -> Value {
        get(self.story, &self.like).await
    }

    /// Its passes so far.
    pub(crate) fn passes(&self) -> Vec<PassRecord> {
        let name = self.like["metadata"]["name"].as_str().unwrap_or_default();
        self.story.host.passes_of(name)
    }

    /// Waits for more passes than this; those that came.
    pub(crate) async fn passes_after(&self, seen: usize) -> Vec<PassRecord> {
        self.until_pass(seen, |_| true).await;
        self.passes().split_off(seen)
    }

    /// Waits until one of its passes, beside the first `seen`, is so.
    pub(crate) async fn until_pass(&self, seen: usize, holds: impl Fn(&PassRecord) -> bool) -> PassRecord {
        for _ in 0..LOOKS {
            if let Some(pass) = self.passes().into_iter().skip(seen).find(&holds) {
                return pass;
            }
            self.story.sleep(LOOK_EVERY).await;
        }
        let passes = self.passes();
        let edges: Vec<String> = passes.iter().map(edges).collect();
        panic!("{}: the passes were {edges:?}", self.like["metadata"]["name"]);
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut object = Value::Null;
        for _ in 0..LOOKS {
            object = self.object().await;
            if holds(&object) {
                return object;
            }
            self.story.sleep(LOOK_EVERY).await;
        }
        panic!("{what}: not so: {object:#}");
    }

    /// Waits until a value of it is this.
    pub(crate) async fn until_is(&self, at: &str, wanted: &str) -> Value {
        let holds = |object: &Value| projection::get(object, at).is_some_and(|value| value == wanted);
        self.until(&format!("{at} is {wanted}"), holds).await
    }

    /// Somebody merges this into it.
    pub(crate) async fn edit(&self, patch: Value) {
        edit(self.story, &self.like, patch).await;
    }

    /// Somebody asks for a pass; the first that comes.
    pub(crate) async fn again(&self, nonce: &str) -> PassRecord {
        let seen = self.passes().len();
        self.edit(json!({"metadata": {"annotations": {"request.polity.dev/look": nonce}}}))
            .await;
        self.passes_after(seen).await.remove(0)
    }

    /// Somebody deletes it.
    pub(crate) async fn delete(&self) {
        delete(self.story, &self.like).await;
    }
}
