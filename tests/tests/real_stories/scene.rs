//! A story of several objects, and functions that see what people see of them. A backend says on which API server it
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::ACCEPT;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchParams};
use kube::client::Body;
use polity_core::call::{Scope, WatchEvent, Write};
use polity_core::contract::{Act, Ask, Kind, ObjectDelete, ObjectRef, Precondition, Question, Request};
use polity_core::object::Object;
use polity_core::record::PassRecord;
use polity_tests::host_harness::backend::{Backend, Embedded, RealServer, node_of};
use polity_tests::host_harness::story::{Story, between_passes};
use polity_tests::host_harness::{Host, Site};
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::real_stories::seen;

/// Between two looks at passes, and after a list that was refused for now.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What there is before a story begins.
#[derive(Default)]
pub(crate) struct Setting {
    /// The bindings.
    pub(crate) bindings: Vec<Value>,
    /// Other objects; definitions of kinds among them.
    pub(crate) objects: Vec<Value>,
    /// What is put in place of a cloud that answers at once and hides nothing.
    pub(crate) overrides: Value,
    /// Whose deletions are told by [`Scene::until_gone`].
    pub(crate) mortals: Vec<Kind>,
    /// The bindings of node agents. Each is a process of its own that has no other, and a service account of its own.
    pub(crate) agents: Vec<Value>,
}

/// A story of several objects: what is compared of it, and what of it goes.
pub(crate) struct Scene {
    story: Story,
    gone: watch::Receiver<Vec<(ObjectRef, u64)>>,
    turns: Vec<(String, Value)>,
    agents: BTreeMap<String, Agent>,
}

impl Deref for Scene {
    type Target = Story;

    fn deref(&self) -> &Story {
        &self.story
    }
}

/// The agent of a node.
struct Agent {
    binding: Value,
    client: kube::Client,
    running: Option<Host>,
    /// What agents that have ended requested of the API server, and their passes.
    requested: BTreeSet<String>,
    before: Vec<PassRecord>,
}

/// Tells a story on the embedded API, then on a real one, and compares what was seen at its turns.
pub(crate) fn alike(setting: impl Fn() -> Setting, story: impl AsyncFn(&mut Scene)) {
    let tell = async |on: &dyn Backend| {
        let mut scene = Scene::open(on, &setting()).await;
        story(&mut scene).await;
        scene.close().await
    };
    let embedded = virtual_time().block_on(tell(&Embedded { recordings: None }));
    // A panic from here on is that of the real server.
    eprintln!("told on the embedded API: {:?}", std::thread::current().name());
    let assets = match Assets::find_with_controllers() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let real = real_time().block_on(tell(&RealServer::new(server)));
    assert!(!embedded.is_empty(), "nothing was compared");
    for (embedded, real) in embedded.iter().zip(&real) {
        assert_eq!(
            format!("{:#}", embedded.1),
            format!("{:#}", real.1),
            "{}: left the embedded API, right a real one",
            embedded.0
        );
    }
    assert_eq!(embedded.len(), real.len());
}

/// A cloud that answers at once and hides nothing.
fn cloud(overrides: &Value) -> Value {
    let short = json!({"min": "100ms", "max": "100ms"});
    let mut cloud = json!({
        "lag": "0ms", "answers": {"min": "1ms", "max": "1ms"}, "queue": {"min": "0ms", "max": "0ms"},
        "dhcp": short, "machines": {"boot": short, "join": short},
        "tasks": {"clone": short, "reconfigure": short, "powerOn": short, "powerOff": short, "destroy": short},
    });
    polity_tests::simulation::store::merge(&mut cloud, overrides);
    cloud
}

fn virtual_time() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

fn real_time() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

impl Scene {
    /// Applies the setting and starts the host and the agents.
    async fn open(on: &dyn Backend, setting: &Setting) -> Self {
        let (bindings, objects) = (setting.bindings.clone(), setting.objects.clone());
        let about = &setting.bindings[0];
        let story = Story::begin_among(on, cloud(&setting.overrides), bindings, objects, about).await;
        story.site.play_kubelets();
        let mut scene = Scene {
            gone: deaths(&story.site, &setting.mortals).await,
            story,
            turns: Vec::new(),
            agents: BTreeMap::new(),
        };
        for binding in &setting.agents {
            let agent = Agent {
                binding: binding.clone(),
                client: on.agent(&scene.site, binding).await,
                running: None,
                requested: BTreeSet::new(),
                before: Vec::new(),
            };
            scene.agents.insert(node_of(binding).to_owned(), agent);
            scene.start_agent(node_of(binding));
        }
        scene
    }

    /// Lets the host and the agents finish; what was seen at the turns.
    async fn close(self) -> Vec<(String, Value)> {
        for agent in self.agents.into_values() {
            if let Some(agent) = agent.running {
                agent.stop().await;
            }
        }
        self.story.host.stop().await;
        self.turns
    }

    /// The agent of a node starts.
    pub(crate) fn start_agent(&mut self, node: &str) {
        let agent = self.agents.get_mut(node).expect("its binding is in the setting");
        let (client, binding) = (agent.client.clone(), agent.binding.clone());
        agent.running = Some(self.story.site.start_agent_by(client, binding));
    }

    /// The agent of a node ends, in the middle of whatever it does.
    pub(crate) async fn kill_agent(&mut self, node: &str) {
        let agent = self.agents.get_mut(node).expect("its binding is in the setting");
        let running = agent.running.take().expect("it runs");
        running.kill();
        agent.requested.extend(running.wire.requests());
        agent.before.extend(running.news());
        running.crash().await;
    }

    /// What the agent of a node has requested of the API server: `PATCH /api/v1/nodes/n`.
    pub(crate) fn requested_by(&self, node: &str) -> BTreeSet<String> {
        let agent = &self.agents[node];
        let now = agent.running.as_ref().map(|host| host.wire.requests());
        let mut all = now.unwrap_or_default();
        all.extend(agent.requested.iter().cloned());
        all
    }

    /// Somebody creates an object.
    pub(crate) async fn create(&self, object: &Value) -> Value {
        let applied = self.site.cluster.apply(object).await;
        applied.unwrap_or_else(|failure| panic!("{failure}: {object}"));
        self.get(&named(object)).await
    }

    /// Somebody merges this into an object or its subresource.
    pub(crate) async fn edit(&self, object: &ObjectRef, subresource: Option<&str>, patch: Value) {
        let patched = self.site.patch(object, subresource, patch).await;
        patched.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Somebody deletes an object.
    pub(crate) async fn delete(&self, object: &ObjectRef) {
        let deleted = self.site.delete(object, None).await;
        deleted.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Somebody deletes an object after those that it owns.
    pub(crate) async fn delete_last(&self, object: &ObjectRef) {
        let delete = ObjectDelete {
            object: object.clone(),
            precondition: Precondition {
                uid: Object::new(self.get(object).await).uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: Some("Foreground".into()),
        };
        let deleted = self.site.cluster.write(&Write::Act(Act::Delete(delete))).await;
        deleted.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// An object as it stands; null if there is none.
    pub(crate) async fn get(&self, object: &ObjectRef) -> Value {
        self.site.get(object).await.unwrap_or_default()
    }

    /// Waits until no pass of the host or of an agent is in flight.
    async fn between_passes(&self) {
        let agents = self.agents.values().filter_map(|agent| agent.running.as_ref());
        let hosts: Vec<&Host> = agents.chain([&self.story.host]).collect();
        between_passes(&hosts, self.patience).await;
    }

    /// Waits until this holds of an object, and the pass that brought it about has ended; null is one that is not
    /// there.
    pub(crate) async fn until(&self, object: &ObjectRef, holds: impl Fn(&Value) -> bool) -> Value {
        let scope = Scope {
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: Some(object.name.clone()),
            node: None,
            fields: Vec::new(),
        };
        let mut last = Value::Null;
        let seen = tokio::time::timeout(self.patience, async {
            let mut events = pin!(self.site.cluster.watch(scope));
            while let Some(event) = events.next().await {
                last = match event {
                    WatchEvent::Listed { objects, .. } => whole(objects.first()),
                    WatchEvent::Applied(object) => whole(Some(&object)),
                    WatchEvent::Deleted(_) => Value::Null,
                    WatchEvent::Failed(_) => continue,
                };
                if holds(&last) {
                    return;
                }
            }
        });
        if seen.await.is_err() {
            let edges = self.edges_of(object);
            panic!("never seen of {object:?}: it is {last:#}, and its passes took {edges:#?}");
        }
        self.between_passes().await;
        last
    }

    /// Waits until an object of one of the setting's mortal kinds is gone; the version of its deletion.
    pub(crate) async fn until_gone(&self, object: &ObjectRef) -> u64 {
        let find = |gone: &[(ObjectRef, u64)]| gone.iter().find(|(name, _)| name == object).map(|(_, v)| *v);
        let mut gone = self.gone.clone();
        let seen = tokio::time::timeout(self.patience, gone.wait_for(|gone| find(gone).is_some())).await;
        let found = seen.map(|gone| find(&gone.expect("watches go on")).expect("it is gone"));
        match found {
            Ok(version) => {
                self.between_passes().await;
                version
            }
            Err(_) => {
                let (edges, stays) = (self.edges_of(object), self.get(object).await);
                panic!("{object:?} stays: {stays:#}, and its passes took {edges:#?}")
            }
        }
    }

    /// Waits until this holds of the last pass of an object.
    pub(crate) async fn until_last_pass(&self, of: &ObjectRef, holds: impl Fn(&PassRecord) -> bool) {
        let last = |passes: Vec<PassRecord>| passes.last().is_some_and(&holds).then_some(());
        self.until_passes_of(of, last).await;
    }

    /// Waits for a pass of an object, after its first `after` ones, of which this holds.
    pub(crate) async fn until_pass(
        &self,
        of: &ObjectRef,
        after: usize,
        holds: impl Fn(&PassRecord) -> bool,
    ) -> PassRecord {
        let find = |passes: Vec<PassRecord>| passes.into_iter().skip(after).find(&holds);
        self.until_passes_of(of, find).await
    }

    /// Waits until something is found among the passes of an object.
    async fn until_passes_of<T>(&self, of: &ObjectRef, find: impl Fn(Vec<PassRecord>) -> Option<T>) -> T {
        let end = tokio::time::Instant::now() + self.patience;
        loop {
            if let Some(found) = find(self.passes_of(of)) {
                return found;
            }
            let more = tokio::time::Instant::now() < end;
            assert!(more, "the passes of {of:?} took {:#?}", self.edges_of(of));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The passes of an object so far.
    pub(crate) fn passes_of(&self, object: &ObjectRef) -> Vec<PassRecord> {
        let agents = self.agents.values().map(|agent| &agent.running);
        let running = agents.flatten().chain([&self.story.host]);
        let now = running.flat_map(|host| host.passes_of(&object.name));
        let before = self.agents.values().flat_map(|agent| agent.before.clone());
        let all = before.chain(now);
        all.filter(|pass| is_of(pass, object)).collect()
    }

    fn edges_of(&self, object: &ObjectRef) -> Vec<String> {
        let edges = |pass: &PassRecord| pass.notes().collect::<Vec<_>>().join(" ");
        self.passes_of(object).iter().map(edges).collect()
    }

    /// Wants this turn compared.
    pub(crate) fn sees(&mut self, turn: &str, what: Value) {
        self.turns.push((turn.to_owned(), what));
    }

    /// Wants the columns compared that kubectl shows of this list, and its rows but for ages.
    pub(crate) async fn sees_table(&mut self, turn: &str, path: &str) {
        let request = http::Request::get(path).header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io");
        let request = request.body(Body::empty()).expect("a request");
        let response = self.site.client().send(request).await.expect("an answer");
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        let table: Value = serde_json::from_slice(&bytes).expect("JSON");
        let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
        assert!(!columns.is_empty(), "{table}");
        let rows = table["rows"].as_array().cloned().unwrap_or_default();
        let row = |row: &Value| {
            let cells = columns.iter().zip(row["cells"].as_array().into_iter().flatten());
            let cells = cells.map(|(column, cell)| {
                if column["name"] == "Age" {
                    "(age)".into()
                } else {
                    cell.clone()
                }
            });
            cells.collect::<Value>()
        };
        let head = columns.iter().map(|column| {
            let field = |name: &str| column[name].clone();
            json!([field("name"), field("type"), field("format"), field("priority")])
        });
        let shown =
            json!({"columns": head.collect::<Value>(), "rows": rows.iter().map(row).collect::<Value>()});
        self.sees(turn, seen::masked(&shown));
    }
}

/// Follows the deletions of these kinds from now on. Not by the host's watches: those show no Secrets.
async fn deaths(site: &Site, kinds: &[Kind]) -> watch::Receiver<Vec<(ObjectRef, u64)>> {
    let gone = watch::Sender::new(Vec::new());
    for kind in kinds {
        let (group, version) = kind
            .api_version
            .split_once('/')
            .unwrap_or(("", &kind.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind.kind));
        let api = kube::Api::<DynamicObject>::all_with(site.client(), &resource);
        let mut version = loop {
            match api.list(&ListParams::default()).await {
                Ok(listed) => break listed.metadata.resource_version.expect("a version"),
                // A real server says so of a kind that has just been defined: "storage is (re)initializing".
                Err(kube::Error::Api(status)) if status.code == 429 => tokio::time::sleep(LOOK_AGAIN).await,
                Err(other) => panic!("no list of {resource:?}: {other}"),
            }
        };
        let gone = gone.clone();
        tokio::spawn(async move {
            loop {
                let events = api.watch(&WatchParams::default(), &version).await;
                let mut events = pin!(events.expect("a watch"));
                while let Some(event) = events.next().await {
                    let (object, is_gone) = match event.expect("an event") {
                        kube::api::WatchEvent::Deleted(object) => (object, true),
                        kube::api::WatchEvent::Added(object) | kube::api::WatchEvent::Modified(object) => {
                            (object, false)
                        }
                        other => panic!("the watch of {resource:?} says {other:?}"),
                    };
                    version = object.resource_version().expect("a version");
                    let object = Object::new(serde_json::to_value(&object).expect("JSON"));
                    if is_gone {
                        gone.send_modify(|all| all.push((object.reference(), object.version().0)));
                    }
                }
            }
        });
    }
    gone.subscribe()
}

fn whole(object: Option<&Object>) -> Value {
    object.map_or(Value::Null, |object| object.tree())
}

fn is_of(pass: &PassRecord, object: &ObjectRef) -> bool {
    pass.kind == object.kind && *pass.key.name == *object.name
}

/// An object's name.
pub(crate) fn named(object: &Value) -> ObjectRef {
    Object::new(object.clone()).reference()
}

/// Status and reason of a condition.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let found = polity_tests::host_fixture::condition_of(object, kind);
    found.map_or(Value::Null, |found| json!([found["status"], found["reason"]]))
}

/// Whether a pass took this edge.
pub(crate) fn took(pass: &PassRecord, edge: &str) -> bool {
    pass.notes().any(|note| note == edge)
}

/// What a pass asked of the cloud, except for whose credentials it has, or did to it.
pub(crate) fn calls(pass: &PassRecord) -> Vec<String> {
    let asked = requests(pass).filter_map(|request| match request {
        Request::Ask(Ask {
            question: Question::Cloud(call),
            ..
        }) => Some(call.operation.clone()),
        _ => None,
    });
    asked.chain(changes(pass)).collect()
}

/// What a pass did to the cloud.
pub(crate) fn changes(pass: &PassRecord) -> Vec<String> {
    let done = requests(pass).filter_map(|request| match request {
        Request::Act(Act::Cloud(act)) => Some(act.operation.clone()),
        _ => None,
    });
    done.collect()
}

/// The session that a pass was answered: `{handle, reused, attributes}`.
pub(crate) fn session(pass: &PassRecord) -> Value {
    let entries = pass.roles.iter().flat_map(|role| &role.journal);
    let mut answers = entries.filter_map(|entry| match &entry.request {
        Request::Ask(Ask {
            question: Question::Credential(_),
            ..
        }) => entry.answer.as_ref().ok(),
        _ => None,
    });
    let answer = answers.next();
    answer.map_or(Value::Null, |json| serde_json::from_str(json).expect("JSON"))
}

fn requests(pass: &PassRecord) -> impl Iterator<Item = &Request> {
    let entries = pass.roles.iter().flat_map(|role| &role.journal);
    entries.map(|entry| &entry.request)
}
