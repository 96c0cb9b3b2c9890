//! Objects that no policy may name, whatever its binding grants: a hostile policy for each entry of the list.

use polity_core::record::Outcome;
use polity_tests::host_fixture::{HostFixture, reference, things};
use serde_json::{Value, json};

use super::wishes::{all_refused, answers, codes, granting, wish, wishing};

/// A kind that is closed.
struct Closed {
    api_version: String,
    kind: &'static str,
    /// How the host would ask the API server for it.
    plural: &'static str,
}

impl Closed {
    fn object(&self, namespace: Option<&str>) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind, "name": "victim"});
        if let Some(namespace) = namespace {
            object["namespace"] = namespace.into();
        }
        object
    }

    fn kind(&self) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.kind})
    }

    /// Everything that a binding can grant of it.
    fn grants(&self) -> Vec<Value> {
        let mut everywhere = self.kind();
        everywhere["namespaces"] = json!(["*"]);
        let verbs = ["ask", "create", "patch", "delete", "evict"];
        verbs.iter().map(|verb| json!({*verb: everywhere})).collect()
    }

    /// Everything that a policy can request of it, in its own namespace and in none.
    fn wishes(&self) -> Vec<Value> {
        let mut wishes = vec![json!({"objects": self.kind()})];
        for namespace in [None, Some("default")] {
            let object = self.object(namespace);
            let metadata = json!({"name": "victim", "namespace": namespace});
            let new = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata});
            let change = json!({"object": object, "uid": "u", "patch": {"spec": {"by": "a policy"}}});
            let mut of_status = change.clone();
            of_status["subresource"] = "status".into();
            wishes.extend([
                json!({"object": object}),
                json!({"latest": object}),
                json!({"create": new}),
                json!({"patch": change}),
                json!({"patch": of_status}),
                json!({"delete": change}),
                json!({"evict": change}),
            ]);
        }
        wishes
    }
}

/// Whatever is granted of a kind, its every request is refused before the API server hears of it, the binding says so,
/// and no binding can govern it.
async fn is_closed(closed: Closed) {
    let fixture = HostFixture::with(vec![granting(closed.grants().into())]).await;
    let answers = wish(&fixture, "curious", closed.wishes().into()).await;
    let words = format!(
        "not granted: {} of {} is closed to policies",
        closed.kind, closed.api_version
    );
    all_refused(&answers, &words);
    fixture.until_said("things", "Ungranted", "True", &words).await;

    let mut governing = things();
    governing["metadata"]["name"] = "governing".into();
    governing["spec"]["governs"] = closed.kind();
    fixture.apply(&governing).await;
    fixture
        .until_said("governing", "Loaded", "False", "cannot be governed")
        .await;

    let of_victim = |request: &&String| request.split('/').any(|part| part == closed.plural);
    let requests = fixture.host.wire.requests();
    // The host itself looks at the definition of the kind that it governs.
    let of_host = |request: &&String| request.contains("/customresourcedefinitions/things.");
    let requested: Vec<&String> = requests
        .iter()
        .filter(of_victim)
        .filter(|request| !of_host(request))
        .collect();
    assert!(requested.is_empty(), "{requested:?}");
}

/// A test for each group: by its name in Kubernetes, and by the short one that a server of one's own may have.
macro_rules! closed_groups {
    ($($test:ident: $group:literal, $kind:literal, $plural:literal;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {
            for group in [$group, $group.trim_end_matches(".k8s.io")] {
                let api_version = format!("{group}/v1");
                is_closed(Closed { api_version, kind: $kind, plural: $plural }).await;
            }
        }
    )*};
}

closed_groups! {
    who_somebody_is_is_asked_by_no_policy: "authentication.k8s.io", "TokenReview", "tokenreviews";
    what_somebody_may_is_asked_by_no_policy: "authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews";
    roles_are_seen_and_given_by_no_policy: "rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings";
    certificates_are_requested_and_approved_by_no_policy: "certificates.k8s.io", "CertificateSigningRequest",
        "certificatesigningrequests";
    admission_is_changed_by_no_policy: "admissionregistration.k8s.io", "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations";
    definitions_are_changed_by_no_policy: "apiextensions.k8s.io", "CustomResourceDefinition",
        "customresourcedefinitions";
    api_services_are_changed_by_no_policy: "apiregistration.k8s.io", "APIService", "apiservices";
}

fn of_core(kind: &'static str, plural: &'static str) -> Closed {
    Closed {
        api_version: "v1".into(),
        kind,
        plural,
    }
}

#[tokio::test(start_paused = true)]
async fn service_accounts_and_their_tokens_are_reached_by_no_policy() {
    let account = of_core("ServiceAccount", "serviceaccounts");
    let fixture = HostFixture::with(vec![granting(account.grants().into())]).await;
    let token =
        json!({"object": account.object(Some("default")), "uid": "u", "patch": {}, "subresource": "token"});
    all_refused(
        &wish(&fixture, "impostor", json!([{"patch": token}])).await,
        "closed to policies",
    );
    is_closed(account).await;
}

/// A Secret that somebody has, and its value as it is stored.
fn somebodys_secret() -> (Value, &'static str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "victim"},
        "data": {"password": "b3BlbiBzZXNhbWU="},
    });
    (secret, "b3BlbiBzZXNhbWU=")
}

#[tokio::test(start_paused = true)]
async fn the_content_of_a_secret_is_seen_and_written_by_no_policy() {
    let secret = of_core("Secret", "secrets");
    let mut grants = secret.grants();
    grants.push(json!({"secrets": {"namespaces": ["*"]}}));
    let fixture = HostFixture::with(vec![granting(grants.into())]).await;
    let (stored, value) = somebodys_secret();
    fixture.apply(&stored).await;
    let at = reference("v1", "Secret", Some("default"), "victim");
    let before = fixture.get(&at).await;

    let mut wishes = secret.wishes();
    wishes.push(json!({"secret": secret.object(Some("default"))}));
    let mut answers = wish(&fixture, "curious", wishes.into()).await;
    // What may be known of it: that it is there, and its keys.
    let facts = answers.pop().expect("an answer").expect("the facts");
    assert_eq!(
        (&facts["exists"], &facts["keys"]),
        (&json!(true), &json!(["password"]))
    );
    all_refused(&answers, "closed to policies");
    let passes = format!("{:?}", fixture.host.passes_of("curious"));
    assert!(
        !passes.contains(value) && !passes.contains("open sesame"),
        "{passes}"
    );
    assert_eq!(fixture.get(&at).await, before);
    is_closed(secret).await;
}

/// A user who may write a binding has the host's own rights.
#[tokio::test(start_paused = true)]
async fn bindings_are_seen_and_written_by_no_policy() {
    let api_version = "polity.dev/v1alpha1";
    let closed = Closed {
        api_version: api_version.into(),
        kind: "PolicyBinding",
        plural: "policybindings",
    };
    let fixture = HostFixture::with(vec![granting(closed.grants().into())]).await;
    let at = reference(api_version, "PolicyBinding", None, "things");
    let before = fixture.get(&at).await;
    let own = json!({"apiVersion": api_version, "kind": "PolicyBinding", "name": "things"});
    let everything = json!({"spec": {"grants": [{"cloud": ["*"]}]}});
    let change = json!({"object": own, "uid": before["metadata"]["uid"], "patch": everything});
    let mut another = things();
    another["metadata"]["name"] = "another".into();
    another["spec"]["governs"]["namespace"] = "elsewhere".into();
    let mut wishes = closed.wishes();
    wishes.extend([
        json!({"object": own}),
        json!({"patch": change}),
        json!({"delete": change}),
        json!({"create": another}),
    ]);
    all_refused(
        &wish(&fixture, "climber", wishes.into()).await,
        "PolicyBinding of polity.dev/v1alpha1 is closed to policies",
    );
    assert_eq!(fixture.get(&at).await["spec"], before["spec"]);
    let bindings = fixture.site.list(api_version, "PolicyBinding").await;
    assert_eq!(bindings.len(), 1);

    let mut governing = things();
    governing["metadata"]["name"] = "governing".into();
    governing["spec"]["governs"] = closed.kind();
    fixture.apply(&governing).await;
    fixture
        .until_said("governing", "Loaded", "False", "cannot be governed")
        .await;
}

/// The list is one for all roles: an identity policy is refused what a lifecycle policy is.
#[tokio::test(start_paused = true)]
async fn an_identity_policy_reaches_no_further() {
    let closed = [
        of_core("Secret", "secrets"),
        of_core("ServiceAccount", "serviceaccounts"),
        Closed {
            api_version: "rbac.authorization.k8s.io/v1".into(),
            kind: "ClusterRoleBinding",
            plural: "clusterrolebindings",
        },
    ];
    let mut binding = granting(closed.iter().flat_map(Closed::grants).collect());
    binding["spec"]["policies"]["identity"] = json!({"file": "hostile-identity.wasm"});
    let fixture = HostFixture::with(vec![binding]).await;
    fixture.apply(&somebodys_secret().0).await;
    let wishes: Value = closed.iter().flat_map(Closed::wishes).collect();
    let mut thing = wishing("curious", &wishes);
    thing["metadata"]["annotations"]["identity"] = "wish".into();
    fixture.apply(&thing).await;
    let pass = fixture.until_passed("curious", 0, &Outcome::Denied).await;
    all_refused(&answers(&pass), "closed to policies");
}

/// A grant to create a kind that runs containers counts only for the name that it says.
async fn is_created_by_name_only(api_version: &str, kind: &str, plural: &str) {
    let any = json!({"apiVersion": api_version, "kind": kind});
    let mut named = any.clone();
    named["name"] = "granted".into();
    let fixture = HostFixture::with(vec![granting(json!([{"create": any}, {"create": named}]))]).await;
    let create = |name: &str| {
        let metadata = json!({"namespace": "default", "name": name});
        let spec = json!({"containers": [{"name": "miner", "image": "miner"}]});
        json!({"create": {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}})
    };
    let refused = wish(&fixture, "miner", json!([create("miner")])).await;
    let words = format!("not granted: create workload {kind} by name");
    all_refused(&refused, &words);
    fixture.until_said("things", "Ungranted", "True", &words).await;
    let posted = |request: &String| request.starts_with("POST") && request.ends_with(plural);
    assert!(!fixture.host.wire.requests().iter().any(posted));

    // What is granted by name reaches the API server. The embedded one knows only Pods.
    let made = wish(&fixture, "operator", json!([create("granted")])).await;
    let code = (kind != "Pod").then_some(polity_core::contract::Code::Unimplemented);
    assert_eq!(codes(&made), [code]);
}

macro_rules! workloads {
    ($($test:ident: $api_version:literal, $kind:literal, $plural:literal;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {
            is_created_by_name_only($api_version, $kind, $plural).await;
        }
    )*};
}

workloads! {
    a_pod_is_created_by_a_grant_of_its_name_only: "v1", "Pod", "pods";
    a_deployment_is_created_by_a_grant_of_its_name_only: "apps/v1", "Deployment", "deployments";
    a_stateful_set_is_created_by_a_grant_of_its_name_only: "apps/v1", "StatefulSet", "statefulsets";
    a_daemon_set_is_created_by_a_grant_of_its_name_only: "apps/v1", "DaemonSet", "daemonsets";
    a_replica_set_is_created_by_a_grant_of_its_name_only: "apps/v1", "ReplicaSet", "replicasets";
    a_replication_controller_is_created_by_a_grant_of_its_name_only: "v1", "ReplicationController",
        "replicationcontrollers";
    a_job_is_created_by_a_grant_of_its_name_only: "batch/v1", "Job", "jobs";
    a_cron_job_is_created_by_a_grant_of_its_name_only: "batch/v1", "CronJob", "cronjobs";
}
