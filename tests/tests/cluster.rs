//! The promises of `polity-cluster` hold with the embedded API and with a real kube-apiserver: the same
//! checks on both.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use polity_cluster::{Applied, Cluster};
use polity_core::call::{LeaseWrite, Scope, WatchEvent, Write};
use polity_core::contract::{
    Act, Code, Effect, Event, EventType, Eviction, Kind, ListQuery, ObjectDelete, ObjectPatch, ObjectQuery,
    ObjectRef, Precondition, Question,
};
use polity_core::object::Object;
use polity_core::time::Unix;
use polity_standalone::{Api, Store};
use polity_tests::host_harness::wire::{Frames, until_cut};
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, service_fn};

const LEASE: (&str, &str) = ("kube-system", "polity");
/// Longer than any wait of a watch that fails: an event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Changes of a kind that the embedded API remembers here.
const HISTORY: usize = 4;

/// What lies between the host and the API server, and can fail.
#[derive(Clone)]
struct Wire {
    to: kube::Client,
    /// Refuses connections.
    down: Arc<AtomicBool>,
    /// Cuts what is open when it changes.
    cut: watch::Sender<u64>,
    /// The version that the next watch asks for instead of its own.
    instead: Arc<Mutex<Option<String>>>,
    /// `METHOD path?query` of every request.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Wire {
    fn new(to: kube::Client) -> Self {
        Wire {
            to,
            down: Arc::default(),
            cut: watch::Sender::new(0),
            instead: Arc::default(),
            seen: Arc::default(),
        }
    }

    fn cluster(&self) -> Cluster {
        let wire = self.clone();
        let service = service_fn(move |request| wire.clone().pass(request));
        Cluster::new(kube::Client::new(service, "default"), LEASE)
    }

    fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// How often something was asked for whose URL holds all of these.
    fn count(&self, parts: &[&str]) -> usize {
        let seen = self.seen.lock().expect("a lock");
        seen.iter()
            .filter(|line| parts.iter().all(|part| line.contains(part)))
            .count()
    }

    async fn pass(self, mut request: Request<Body>) -> Result<Response<Streamed>, BoxError> {
        let line = format!("{} {}", request.method(), request.uri());
        self.seen.lock().expect("a lock").push(line);
        if self.down.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let url = request.uri().to_string();
        if url.contains("watch=true")
            && let Some(version) = self.instead.lock().expect("a lock").take()
        {
            let (before, _) = url
                .split_once("&resourceVersion=")
                .ok_or("a watch without a version")?;
            *request.uri_mut() = format!("{before}&resourceVersion={version}").parse()?;
        }
        let cuts = self.cut.subscribe();
        let response = self.to.send(request).await?;
        Ok(response.map(|body| until_cut(body.into_data_stream(), cuts)))
    }
}

type Streamed = StreamBody<Frames>;

/// A server and a namespace of its own for one check.
#[derive(Clone)]
struct Site {
    wire: Wire,
    cluster: Cluster,
    namespace: String,
    /// Somebody counts the pods of disruption budgets: the embedded API itself, a controller that a real one lacks here.
    counts_pods: bool,
}

impl Site {
    async fn new(wire: Wire, name: &str, counts_pods: bool) -> Self {
        let cluster = wire.cluster();
        let crd = crd("widgets", "Widget");
        cluster.apply(&crd).await.expect("the CRD is applied");
        cluster
            .wait_established("widgets.test.polity.dev")
            .await
            .expect("the CRD is served");
        let namespace = name.replace('_', "-").chars().take(60).collect::<String>();
        let namespace = namespace.trim_end_matches('-').to_owned();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.apply(&object).await.expect("the namespace is applied");
        wire.seen.lock().expect("a lock").clear();
        Site {
            wire,
            cluster,
            namespace,
            counts_pods,
        }
    }

    fn widget(&self, name: &str) -> Value {
        json!({
            "apiVersion": "test.polity.dev/v1", "kind": "Widget",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": {"size": 1},
        })
    }

    fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    }

    /// A budget of those Pods.
    fn budget(&self, name: &str, max_unavailable: u32) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "a"}}},
        })
    }

    fn reference(&self, name: &str) -> ObjectRef {
        self.of(widget_kind(), name)
    }

    fn of(&self, kind: Kind, name: &str) -> ObjectRef {
        ObjectRef {
            cluster: None,
            kind,
            namespace: Some(self.namespace.clone()),
            name: name.to_owned(),
        }
    }

    async fn create(&self, object: &Value) -> Object {
        let created = self
            .cluster
            .write(&Write::Act(Act::create(object.to_string())))
            .await;
        Object::new(created.expect("created"))
    }

    async fn read(&self, name: &str) -> Result<Value, polity_core::contract::Failure> {
        let question = Question::Object(ObjectQuery {
            object: self.reference(name),
            projection: Vec::new(),
            latest: true,
        });
        self.cluster.read(&question).await
    }

    fn scope(&self) -> Scope {
        Scope {
            kind: widget_kind(),
            namespace: Some(self.namespace.clone()),
            name: None,
            node: None,
            fields: Vec::new(),
        }
    }

    fn patch(&self, object: &Object, subresource: Option<&str>, patch: Value) -> Write {
        Write::Patch {
            object: object.reference(),
            subresource: subresource.map(str::to_owned),
            precondition: Some(object.precondition()),
            patch,
        }
    }
}

fn kind(api_version: &str, kind: &str) -> Kind {
    Kind {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

fn widget_kind() -> Kind {
    kind("test.polity.dev/v1", "Widget")
}

fn crd(plural: &str, kind: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.test.polity.dev")},
        "spec": {
            "group": "test.polity.dev", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    })
}

async fn next(events: &mut (impl Stream<Item = WatchEvent> + Unpin)) -> WatchEvent {
    let event = tokio::time::timeout(PATIENCE, events.next()).await;
    event.expect("an event in time").expect("watches do not end")
}

/// What an event says, without versions: they differ between servers.
fn text(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Listed { objects, .. } => {
            let mut names: Vec<&str> = objects.iter().map(Object::name).collect();
            names.sort_unstable();
            format!("listed {}", names.join(" "))
        }
        WatchEvent::Applied(object) => format!("applied {}", object.name()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name()),
        WatchEvent::Failed(_) => "failed".to_owned(),
    }
}

async fn applying_creates_merges_and_leaves_alone(site: Site) {
    let mut widget = site.widget("x");
    assert_eq!(site.cluster.apply(&widget).await, Ok(Applied::Created));
    assert_eq!(site.cluster.apply(&widget).await, Ok(Applied::Unchanged));
    widget["spec"]["size"] = json!(2);
    assert_eq!(site.cluster.apply(&widget).await, Ok(Applied::Changed));
    assert_eq!(site.read("x").await.expect("it is there")["spec"]["size"], 2);

    widget["spec"]["colour"] = json!("red");
    for object in [&widget, &{
        let mut fresh = widget.clone();
        fresh["metadata"]["name"] = json!("y");
        fresh
    }] {
        let failure = site.cluster.apply(object).await.expect_err("an unknown field");
        assert_eq!(failure.code, Code::InvalidArgument, "{failure}");
        assert!(failure.message.contains("colour"), "{failure}");
    }
    widget["spec"] = json!({"size": 10});
    let failure = site.cluster.apply(&widget).await.expect_err("too large");
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(failure.message.contains("spec.size"), "{failure}");
}

async fn a_kind_is_used_as_soon_as_its_definition_is_established(site: Site) {
    let gadget = json!({
        "apiVersion": "test.polity.dev/v1", "kind": "Gadget",
        "metadata": {"name": "g", "namespace": site.namespace}, "spec": {"size": 1},
    });
    let failure = site.cluster.apply(&gadget).await.expect_err("not served");
    assert_eq!(failure.code, Code::Unimplemented);
    assert!(
        failure.message.contains("Gadget of test.polity.dev/v1"),
        "{failure}"
    );
    site.cluster
        .apply(&crd("gadgets", "Gadget"))
        .await
        .expect("applied");
    site.cluster
        .wait_established("gadgets.test.polity.dev")
        .await
        .expect("served");
    assert_eq!(site.cluster.apply(&gadget).await, Ok(Applied::Created));
}

async fn a_watch_shows_what_writes_do(site: Site) {
    site.create(&site.widget("x")).await;
    let mut events = pin!(site.cluster.watch(site.scope()));
    let WatchEvent::Listed { objects, version } = next(&mut events).await else {
        panic!("no list first");
    };
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].kind(), widget_kind());
    assert!(version >= objects[0].version());

    let y = site.create(&site.widget("y")).await;
    let WatchEvent::Applied(seen) = next(&mut events).await else {
        panic!("no new object");
    };
    assert_eq!((seen.name(), seen.version()), ("y", y.version()));

    let patch = site.patch(&y, Some("status"), json!({"status": {"phase": "Ready"}}));
    let written = Object::new(site.cluster.write(&patch).await.expect("patched"));
    assert_eq!(written.tree()["status"]["phase"], "Ready");
    assert_eq!(written.generation(), y.generation());
    assert_eq!(next(&mut events).await, WatchEvent::Applied(written.clone()));

    let patch = site.patch(&written, None, json!({"spec": {"size": 3}}));
    let written = Object::new(site.cluster.write(&patch).await.expect("patched"));
    assert_eq!(written.generation(), y.generation().map(|g| g + 1));
    assert_eq!(next(&mut events).await, WatchEvent::Applied(written.clone()));
    assert_eq!(Object::new(site.read("y").await.expect("it is there")), written);
}

async fn a_stale_write_is_aborted_and_changes_nothing(site: Site) {
    let first = site.create(&site.widget("x")).await;
    let patch = site.patch(&first, None, json!({"spec": {"size": 2}}));
    site.cluster.write(&patch).await.expect("patched");
    for subresource in [None, Some("status")] {
        let stale = site.patch(
            &first,
            subresource,
            json!({"spec": {"size": 3}, "status": {"phase": "Lost"}}),
        );
        let failure = site.cluster.write(&stale).await.expect_err("stale");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::Aborted, Effect::None),
            "{failure}"
        );
    }
    let precondition = |uid: &str, version: Option<u64>| Precondition {
        uid: uid.to_owned(),
        resource_version: version.map(|v| v.to_string()),
    };
    for precondition in [
        precondition("11111111-2222-3333-4444-555555555555", None),
        precondition(first.uid(), Some(first.version().0)),
    ] {
        let patch = Write::Act(Act::Patch(ObjectPatch {
            object: site.reference("x"),
            precondition: precondition.clone(),
            subresource: None,
            patch: r#"{"spec":{"size":4}}"#.into(),
        }));
        let delete = Write::Act(Act::Delete(ObjectDelete {
            object: site.reference("x"),
            precondition,
            grace_period_seconds: None,
            propagation_policy: None,
        }));
        for write in [patch, delete] {
            let failure = site.cluster.write(&write).await.expect_err("a precondition");
            assert_eq!(
                (failure.code, failure.effect),
                (Code::Aborted, Effect::None),
                "{failure}"
            );
        }
    }
    let now = site.read("x").await.expect("it is there");
    assert_eq!((&now["spec"]["size"], &now["status"]), (&json!(2), &Value::Null));
    let again = Write::Act(Act::create(site.widget("x").to_string()));
    let failure = site.cluster.write(&again).await.expect_err("it exists");
    assert_eq!(failure.code, Code::AlreadyExists);
    let failure = site.read("nobody").await.expect_err("absent");
    assert_eq!(failure.code, Code::NotFound);
}

async fn a_deleted_object_stands_until_its_finalizer_goes(site: Site) {
    let mut widget = site.widget("x");
    widget["metadata"]["finalizers"] = json!(["polity.dev/test"]);
    let created = site.create(&widget).await;
    let mut events = pin!(site.cluster.watch(site.scope()));
    assert_eq!(text(&next(&mut events).await), "listed x");
    let delete = |object: &Object| {
        Write::Act(Act::Delete(ObjectDelete {
            object: object.reference(),
            precondition: Precondition {
                uid: object.uid().to_owned(),
                resource_version: Some(object.version().0.to_string()),
            },
            grace_period_seconds: None,
            propagation_policy: Some("Background".into()),
        }))
    };
    let standing = site.cluster.write(&delete(&created)).await.expect("deleted");
    let standing = Object::new(standing);
    assert!(standing.is_deleting() && standing.uid() == created.uid());
    assert_eq!(text(&next(&mut events).await), "applied x");
    let patch = site.patch(&standing, None, json!({"metadata": {"finalizers": []}}));
    site.cluster.write(&patch).await.expect("let go");
    let WatchEvent::Deleted(gone) = next(&mut events).await else {
        panic!("it is not gone");
    };
    assert!(gone.uid() == created.uid() && gone.version() > standing.version());

    let plain = site.create(&site.widget("y")).await;
    assert_eq!(site.cluster.write(&delete(&plain)).await, Ok(Value::Null));
    let failure = site.cluster.write(&delete(&plain)).await.expect_err("gone");
    assert_eq!(failure.code, Code::NotFound);
}

async fn lists_select_and_are_bounded(site: Site) {
    for n in 0..5 {
        let mut widget = site.widget(&format!("w{n}"));
        widget["metadata"]["labels"] = json!({"half": if n < 3 { "first" } else { "second" }});
        site.create(&widget).await;
    }
    let list = |label: Option<&str>, field: Option<&str>, limit| {
        Question::Objects(ListQuery {
            namespace: Some(site.namespace.clone()),
            label_selector: label.map(str::to_owned),
            field_selector: field.map(str::to_owned),
            limit,
            latest: true,
            ..ListQuery::all(widget_kind())
        })
    };
    let names = async |question: Question| {
        let found = site.cluster.read(&question).await?;
        let names = found.as_array().into_iter().flatten();
        Ok(names
            .map(|o| o["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>())
    };
    assert_eq!(
        names(list(Some("half in (first)"), None, 3)).await,
        Ok(vec!["w0".into(), "w1".into(), "w2".into()])
    );
    assert_eq!(
        names(list(None, Some("metadata.name=w4"), 1)).await,
        Ok(vec!["w4".to_owned()])
    );
    let failure: polity_core::contract::Failure = names(list(None, None, 4)).await.expect_err("five of four");
    assert_eq!(failure.code, Code::ResourceExhausted);
}

async fn no_name_reaches_anything_else(site: Site) {
    site.create(&site.widget("x")).await;
    for name in ["", ".", "..", "x/status", "x%2Fstatus", "a/../x", "\u{1b}[2J"] {
        let failure = site.read(name).await.expect_err(name);
        assert_eq!(failure.code, Code::InvalidArgument, "{failure}");
        assert!(!failure.message.contains('\u{1b}'));
    }
    let failure = site.read("x?y=z").await.expect_err("no such name");
    assert!(
        matches!(failure.code, Code::NotFound | Code::InvalidArgument),
        "{failure}"
    );
    assert!(site.read("x").await.is_ok());
}

async fn the_lease_is_written_by_one_at_a_time(site: Site) {
    let wire = &site.wire;
    let service = {
        let wire = wire.clone();
        service_fn(move |request| wire.clone().pass(request))
    };
    let cluster = Cluster::new(kube::Client::new(service, "default"), (&site.namespace, "polity"));
    let time = AtomicU64::new(1_795_219_199_990);
    let write = |holder: &str, version: Option<String>| LeaseWrite {
        holder: holder.into(),
        duration: Duration::from_secs(20),
        version,
        transitions: 1,
        // Each renewal is another version, also within a second.
        now: Unix(time.fetch_add(1, Ordering::SeqCst)),
    };
    assert_eq!(cluster.lease(None).await, Ok(None));
    let ours = cluster
        .lease(Some(&write("we", None)))
        .await
        .expect("taken")
        .expect("a lease");
    assert_eq!(
        (ours.holder.as_str(), ours.duration, ours.transitions),
        ("we", Duration::from_secs(20), 1)
    );
    let failure = cluster
        .lease(Some(&write("they", None)))
        .await
        .expect_err("it is there");
    assert_eq!(failure.code, Code::Aborted);
    let renewed = cluster
        .lease(Some(&write("we", Some(ours.version.clone()))))
        .await;
    let renewed = renewed.expect("renewed").expect("a lease");
    let stale = cluster
        .lease(Some(&write("they", Some(ours.version))))
        .await
        .expect_err("stale");
    assert_eq!((stale.code, stale.effect), (Code::Aborted, Effect::None));
    let given_up = cluster.lease(Some(&write("", Some(renewed.version)))).await;
    assert_eq!(given_up.expect("given up").expect("a lease").holder, "");
    assert_eq!(
        cluster.lease(None).await.expect("read").expect("a lease").holder,
        ""
    );
}

async fn of_a_secret_only_its_digest_is_seen(site: Site) {
    let secret = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"password": value},
            "metadata": {"name": "s", "namespace": site.namespace},
        })
    };
    let question = Question::Secret(site.of(kind("v1", "Secret"), "s"));
    let absent = site.cluster.read(&question).await.expect("an answer");
    assert_eq!(absent["exists"], false);
    site.cluster.apply(&secret("hunter2")).await.expect("applied");
    let first = site.cluster.read(&question).await.expect("an answer");
    assert_eq!(
        (&first["exists"], &first["keys"]),
        (&json!(true), &json!(["password"]))
    );
    assert!(!first.to_string().contains("hunter2") && !first.to_string().contains("aHVudGVyMg"));
    let elsewhere = site.wire.cluster();
    assert_eq!(
        elsewhere.read(&question).await.as_ref(),
        Ok(&first),
        "every host has the same key"
    );
    // The same in another namespace, or under another name, is not told to be the same.
    let mut copy = secret("hunter2");
    copy["metadata"]["name"] = json!("t");
    site.cluster.apply(&copy).await.expect("applied");
    copy["metadata"] = json!({"namespace": "default", "name": format!("s-{}", site.namespace)});
    site.cluster.apply(&copy).await.expect("applied");
    let mut in_default = site.of(kind("v1", "Secret"), &format!("s-{}", site.namespace));
    in_default.namespace = Some("default".into());
    for other in [site.of(kind("v1", "Secret"), "t"), in_default] {
        let other = site
            .cluster
            .read(&Question::Secret(other))
            .await
            .expect("an answer");
        assert_eq!(other["keys"], first["keys"]);
        assert_ne!(other["digest"], first["digest"]);
    }
    site.cluster.apply(&secret("hunter3")).await.expect("applied");
    let second = site.cluster.read(&question).await.expect("an answer");
    assert_ne!(first["digest"], second["digest"]);
}

async fn a_service_account_has_tokens_for_who_is_named(site: Site) {
    let name = json!({"name": "builder", "namespace": site.namespace});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name});
    // The embedded API serves no service accounts.
    if !site.counts_pods {
        site.cluster.apply(&account).await.expect("applied");
    }
    let token = async |audiences: &[&str]| {
        let audiences: Vec<String> = audiences.iter().map(|name| (*name).to_owned()).collect();
        let life = Duration::from_hours(1);
        let cluster = &site.cluster;
        cluster
            .service_account_token(&site.namespace, "builder", &audiences, life)
            .await
    };
    let for_nobody = token(&[]).await.expect_err("it would be good for the API server");
    assert_eq!(for_nobody.code, Code::InvalidArgument);
    let token = token(&["sts.example.com"]).await;
    if site.counts_pods {
        assert_eq!(token.expect_err("none").code, Code::Unimplemented);
        return;
    }
    let token = token.expect("a token");
    let claims = token.split('.').nth(1).expect("a JWT");
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).expect("base64");
    let claims: Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!(claims["aud"], json!(["sts.example.com"]));
    // By default the API server accepts tokens for its issuer.
    let own = claims["iss"].as_str().expect("an issuer");
    let both = ["sts.example.com".to_owned(), own.to_owned()];
    let life = Duration::from_hours(1);
    let for_the_server = site
        .cluster
        .service_account_token(&site.namespace, "builder", &both, life);
    let refused = for_the_server
        .await
        .expect_err("it would be good for the API server");
    assert!(
        refused.code == Code::InvalidArgument && refused.message.contains(own),
        "{refused}"
    );
    let subject = format!("system:serviceaccount:{}:builder", site.namespace);
    assert_eq!(claims["sub"], subject);
}

async fn an_event_that_comes_again_is_counted(site: Site) {
    let widget = site.create(&site.widget("x")).await;
    let write = |now| Write::Event {
        object: widget.reference(),
        uid: widget.uid().to_owned(),
        event: Event {
            kind: EventType::Warning,
            reason: "CloneFailed".into(),
            message: "no room ".repeat(500),
        },
        now,
    };
    for n in 0..3 {
        site.cluster
            .write(&write(Unix(1_795_219_000_000 + n * 1_000)))
            .await
            .expect("written");
    }
    let all = Question::Objects(ListQuery {
        namespace: Some(site.namespace.clone()),
        limit: 10,
        latest: true,
        ..ListQuery::all(kind("v1", "Event"))
    });
    let events = site.cluster.read(&all).await.expect("a list");
    assert_eq!(events.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&events[0]["series"]["count"], &events[0]["reason"]),
        (&json!(3), &json!("CloneFailed"))
    );
    assert_eq!(events[0]["involvedObject"]["uid"], widget.uid());
}

/// What a budget takes for a Pod that serves: those that do not are evicted whatever it says.
fn running() -> Value {
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn evict(pod: &Object, uid: &str) -> Write {
    Write::Act(Act::Evict(Eviction {
        object: pod.reference(),
        precondition: Precondition {
            uid: uid.to_owned(),
            resource_version: None,
        },
        grace_period_seconds: Some(0),
    }))
}

async fn a_pod_is_evicted_unless_a_budget_forbids_it(site: Site) {
    let free = site.create(&site.pod("free")).await;
    let other = "11111111-2222-3333-4444-555555555555";
    let failure = site
        .cluster
        .write(&evict(&free, other))
        .await
        .expect_err("another uid");
    assert_eq!(
        (failure.code, failure.effect),
        (Code::Aborted, Effect::None),
        "{failure}"
    );
    assert_eq!(
        site.cluster.write(&evict(&free, free.uid())).await,
        Ok(Value::Null)
    );

    let held = site.create(&site.pod("held")).await;
    site.cluster
        .write(&site.patch(&held, Some("status"), running()))
        .await
        .expect("patched");
    let budget = site.create(&site.budget("b", 0)).await;
    let refused = async |retry_after: Option<u64>| {
        let failure = site.cluster.write(&evict(&held, held.uid())).await;
        let failure = failure.expect_err("a budget");
        let seen = (failure.code, failure.effect, failure.retry_after);
        assert_eq!(
            seen,
            (Code::ResourceExhausted, Effect::None, retry_after),
            "{failure}"
        );
    };
    if !site.counts_pods {
        refused(Some(10_000)).await;
    }
    let counted = json!({
        "observedGeneration": 1, "expectedPods": 1, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0,
    });
    let counted = Write::Patch {
        object: budget.reference(),
        subresource: Some("status".into()),
        precondition: None,
        patch: json!({"status": counted}),
    };
    site.cluster.write(&counted).await.expect("counted");
    // Nobody knows when a budget that is counted allows more.
    refused(None).await;
}

async fn a_pod_with_two_budgets_waits_for_somebody_to_edit_them(site: Site) {
    let pod = site.create(&site.pod("p")).await;
    let served = site.patch(&pod, Some("status"), running());
    site.cluster.write(&served).await.expect("patched");
    for name in ["b", "c"] {
        site.create(&site.budget(name, 1)).await;
    }
    let failure = site.cluster.write(&evict(&pod, pod.uid())).await;
    let failure = failure.expect_err("two budgets");
    let seen = (failure.code, failure.effect, failure.retry_after);
    assert_eq!(seen, (Code::FailedPrecondition, Effect::None, None), "{failure}");
}

async fn a_cut_watch_goes_on_where_it_was(site: Site) {
    let mut events = pin!(site.cluster.watch(site.scope()));
    assert_eq!(text(&next(&mut events).await), "listed ");
    site.create(&site.widget("a")).await;
    assert_eq!(text(&next(&mut events).await), "applied a");
    for name in ["b", "c"] {
        site.wire.cut();
        // Written while nobody watches.
        site.create(&site.widget(name)).await;
        assert_eq!(text(&next(&mut events).await), format!("applied {name}"));
    }
    assert_eq!(
        site.wire.count(&["GET", "/widgets?limit"]),
        1,
        "it is listed once"
    );
}

async fn a_forgotten_version_is_listed_again(site: Site) {
    for n in 0..2 * HISTORY {
        site.create(&site.widget(&format!("w{n}"))).await;
    }
    let mut events = pin!(site.cluster.watch(site.scope()));
    let listed = text(&next(&mut events).await);
    *site.wire.instead.lock().expect("a lock") = Some("1".into());
    site.wire.cut();
    assert_eq!(text(&next(&mut events).await), listed, "and no failure before it");
    site.create(&site.widget("z")).await;
    assert_eq!(text(&next(&mut events).await), "applied z");
}

async fn an_outage_is_said_and_what_happened_meanwhile_is_seen(site: Site) {
    let mut events = pin!(site.cluster.watch(site.scope()));
    assert_eq!(text(&next(&mut events).await), "listed ");
    let a = site.create(&site.widget("a")).await;
    assert_eq!(text(&next(&mut events).await), "applied a");

    site.wire.down.store(true, Ordering::SeqCst);
    site.wire.cut();
    assert_eq!(text(&next(&mut events).await), "failed");
    let patch = site.patch(&a, None, json!({"spec": {"size": 2}}));
    let failure = site.cluster.write(&patch).await.expect_err("down");
    assert_eq!((failure.code, failure.effect), (Code::Unavailable, Effect::None));
    site.wire.down.store(false, Ordering::SeqCst);

    let direct = Wire::new(site.wire.to.clone()).cluster();
    let delete = Write::Act(Act::Delete(ObjectDelete {
        object: a.reference(),
        precondition: Precondition {
            uid: a.uid().to_owned(),
            resource_version: None,
        },
        grace_period_seconds: None,
        propagation_policy: None,
    }));
    direct.write(&delete).await.expect("deleted");
    let seen = text(&next(&mut events).await);
    assert!(["listed ", "listed a"].contains(&seen.as_str()), "{seen}");
    if seen == "listed a" {
        assert_eq!(text(&next(&mut events).await), "deleted a");
    }
}

/// A test of each check on the embedded API, and all of them in a row on a real server.
macro_rules! checks {
    ($($check:ident)*) => {
        mod embedded {
            use super::*;

            $(
                #[test]
                fn $check() {
                    let store = Store::in_memory(Arc::new(SystemTime::now), [7; 16]).with_history(HISTORY);
                    runtime().block_on(async {
                        let wire = Wire::new(kube::Client::new(Api::new(Arc::new(store)), "default"));
                        super::$check(Site::new(wire, stringify!($check), true).await).await;
                    });
                }
            )*
        }

        async fn all(client: &kube::Client) {
            $(
                let name = stringify!($check);
                let site = Site::new(Wire::new(client.clone()), name, false).await;
                // A panic is that of this test: the output says in which check.
                eprintln!("real: {name}");
                $check(site).await;
            )*
        }
    };
}

checks! {
    applying_creates_merges_and_leaves_alone
    a_kind_is_used_as_soon_as_its_definition_is_established
    a_watch_shows_what_writes_do
    a_stale_write_is_aborted_and_changes_nothing
    a_deleted_object_stands_until_its_finalizer_goes
    lists_select_and_are_bounded
    no_name_reaches_anything_else
    the_lease_is_written_by_one_at_a_time
    of_a_secret_only_its_digest_is_seen
    a_service_account_has_tokens_for_who_is_named
    an_event_that_comes_again_is_counted
    a_pod_is_evicted_unless_a_budget_forbids_it
    a_pod_with_two_budgets_waits_for_somebody_to_edit_them
    a_cut_watch_goes_on_where_it_was
    a_forgotten_version_is_listed_again
    an_outage_is_said_and_what_happened_meanwhile_is_seen
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Runs what blocks, the server with it.
async fn blocking(mut server: KubeServer, act: fn(&mut KubeServer)) -> KubeServer {
    let work = tokio::task::spawn_blocking(move || {
        act(&mut server);
        server
    });
    work.await.expect("it ends")
}

#[test]
fn a_real_api_server_is_watched_read_and_written_and_its_death_changes_nothing() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    runtime().block_on(async {
        let client = server.client().await;
        all(&client).await;
        answers_beside_many_watches(&server, Wire::new(client.clone())).await;
        survives_a_kill(server, Wire::new(client)).await;
    });
}

/// The server takes 100 requests at a time on a connection, and each watch is one.
async fn answers_beside_many_watches(server: &KubeServer, wire: Wire) {
    const WATCHES: usize = 150;
    let site = Site::new(wire, "many_watches", false).await;
    let cluster = Cluster::connect(Some(&server.kubeconfig()), None, LEASE)
        .await
        .expect("connected");
    let mut watches: Vec<_> = (0..WATCHES)
        .map(|_| Box::pin(cluster.watch(site.scope())))
        .collect();
    for events in &mut watches {
        assert_eq!(text(&next(events).await), "listed ");
    }
    // Another client writes. Who sees what it wrote has an open watch.
    site.create(&site.widget("a")).await;
    for event in join_all(watches.iter_mut().map(next)).await {
        assert_eq!(text(&event), "applied a");
    }
    let create = Write::Act(Act::create(site.widget("b").to_string()));
    cluster.write(&create).await.expect("the write is answered");
    cluster.lease(None).await.expect("and so are calls for the lease");
    for event in join_all(watches.iter_mut().map(next)).await {
        assert_eq!(text(&event), "applied b");
    }
}

async fn survives_a_kill(server: KubeServer, wire: Wire) {
    let mut site = Site::new(wire, "survives_a_kill", false).await;
    site.cluster = Cluster::connect(Some(&server.kubeconfig()), None, LEASE)
        .await
        .expect("connected");
    let mut events = pin!(site.cluster.watch(site.scope()));
    assert_eq!(text(&next(&mut events).await), "listed ");
    let a = site.create(&site.widget("a")).await;
    assert_eq!(text(&next(&mut events).await), "applied a");

    let server = blocking(server, KubeServer::kill_apiserver).await;
    let WatchEvent::Failed(why) = next(&mut events).await else {
        panic!("nobody noticed");
    };
    assert!(why.contains("Widget"), "{why}");
    let patch = site.patch(&a, None, json!({"spec": {"size": 2}}));
    let failure = site.cluster.write(&patch).await.expect_err("it is dead");
    assert_eq!(
        (failure.code, failure.effect),
        (Code::Unavailable, Effect::None),
        "{failure}"
    );

    let _server = blocking(server, KubeServer::restart_apiserver).await;
    let WatchEvent::Listed { objects, .. } = next(&mut events).await else {
        panic!("it is not listed again");
    };
    assert_eq!(objects, [a]);
    site.cluster
        .write(&patch)
        .await
        .expect("the same write goes through");
    // A server that has just come back may cut a watch once more: then it is listed again with the write in it.
    loop {
        let event = next(&mut events).await;
        let shown = match &event {
            WatchEvent::Listed { objects, .. } => objects.iter().any(|o| o.tree()["spec"]["size"] == 2),
            WatchEvent::Failed(_) => false,
            _ => text(&event) == "applied a",
        };
        if shown {
            return;
        }
    }
}
