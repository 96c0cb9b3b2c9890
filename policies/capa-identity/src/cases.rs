//! The table of cases, edge by edge: an object, the state of the cluster and the cloud, and what the policy does.
//!
//! The cases are data. Two drivers run them and must get the same results: the tests of this crate run the policy
//! natively, the tests of the host run it as a component in the sandbox. [`each_case!`](crate::each_case) makes a test
//! of each case.

use crate::object::{AwsClusterControllerIdentity, AwsServiceAccountIdentity};
use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

/// The vocabulary of this table.
trait Words: Sized {
    fn deleting(self) -> Self;
    /// The answer for a Secret.
    fn secret(self, facts: Value) -> Self;
    /// The answer for the session.
    fn account(self, account: &str, reused: bool) -> Self;
    fn no_session(self, code: Code) -> Self;
    fn granted(self) -> Self;
    /// The object is denied until the resync, with an Event.
    fn denied(self, reason: &'static str) -> Self;
    fn released(self) -> Self;
    fn retried(self, code: Code) -> Self;
}

impl Words for Case {
    fn deleting(self) -> Self {
        self.edited(|object| {
            object["metadata"]["deletionTimestamp"] = NOW.into();
            object["metadata"]["finalizers"] = json!(["other.example.com/held"]);
        })
    }

    fn secret(self, facts: Value) -> Self {
        self.answers("Secret", facts)
    }

    fn account(self, account: &str, reused: bool) -> Self {
        let session = json!({"handle": HANDLE, "reused": reused, "attributes": {"principal": "arn:me", "account": account}});
        self.answers("credential", session)
    }

    fn no_session(self, code: Code) -> Self {
        self.fails("credential", code)
    }

    fn granted(self) -> Self {
        self.verdict(Verdict::Granted(HANDLE.to_owned()))
    }

    fn denied(self, reason: &'static str) -> Self {
        self.event(reason).verdict(Verdict::Denied)
    }

    fn released(self) -> Self {
        self.verdict(Verdict::Released).next(Next::settled())
    }

    fn retried(self, code: Code) -> Self {
        self.fails_with(RetryClass::Short, code, "no")
    }
}

// What the cases share: one cluster that was judged before, its identities, and the time of the pass.

const EARLIER: &str = "2025-12-31T23:00:00Z";
const HANDLE: &str = "session-1";

const CLUSTER: &str = "AWSCluster team/c-1";
const DEFAULT: &str = "AWSClusterControllerIdentity default";
const STATIC: &str = "AWSClusterStaticIdentity keys";
const ROLE: &str = "AWSClusterRoleIdentity role";
const NAMESPACE: &str = "Namespace team";
const SECRET: &str = "Secret capa-system/aws-keys";
const AMBIENT: &str = r#"credential {"region":"eu-central-1","chain":[]}"#;
const STATIC_PLAN: &str = concat!(
    r#"credential {"region":"eu-central-1","chain":[{"secret":{"identity":{"kind":"AWSClusterStaticIdentity","#,
    r#""name":"keys","uid":"uid-keys"},"namespace":"capa-system","name":"aws-keys","digest":"d-1"}}]}"#
);
const UNKNOWN_FIELD: &str = concat!(
    "AWSClusterRoleIdentity role cannot be read: the answer is not what this policy expects: unknown field ",
    "`inlinePolcy`, expected one of `allowedNamespaces`, `roleARN`, `sessionName`, `durationSeconds`, ",
    "`inlinePolicy`, `policyARNs`, `externalID`, `sourceIdentityRef` at line 1 column 183",
);
const NOT_EXPECTED: &str = concat!(
    "the answer is not what this policy expects: unknown field `inlinePolcy`, expected one of ",
    "`allowedNamespaces`, `roleARN`, `sessionName`, `durationSeconds`, `inlinePolicy`, `policyARNs`, ",
    "`externalID`, `sourceIdentityRef` at line 1 column 183",
);
const CREATE: &str = concat!(
    r#"create {"apiVersion":"capa.polity.dev/v1alpha1","kind":"AWSClusterControllerIdentity","#,
    r#""metadata":{"finalizers":[],"name":"default","ownerReferences":[]},"spec":{"allowedNamespaces":{}}}"#
);

fn role_plan(roles: &[&str]) -> String {
    let links: Vec<String> = roles
        .iter()
        .map(|name| {
            format!(
                concat!(
                    r#"{{"role":{{"identity":{{"kind":"AWSClusterRoleIdentity","name":"{0}","uid":"uid-{0}"}},"#,
                    r#""arn":"arn:{0}","durationSeconds":900}}}}"#
                ),
                name
            )
        })
        .collect();
    format!(
        r#"credential {{"region":"eu-central-1","chain":[{}]}}"#,
        links.join(",")
    )
}

fn object(kind: &str, name: &str, namespace: Option<&str>, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "capa.polity.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7"},
        "spec": spec,
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// An owner reference as CAPA-05 writes it.
fn owner(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "capa.polity.dev/v1alpha1", "kind": kind, "name": name, "uid": format!("uid-{name}"),
        "controller": false, "blockOwnerDeletion": false,
    })
}

/// The owner that a cluster of Cluster API has.
fn capi_owner() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c-1", "uid": "uid-capi",
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, since: &str) -> Value {
    let mut condition =
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": since});
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

fn allowed(since: &str) -> Value {
    condition("PrincipalUsageAllowed", "True", "Allowed", "", since)
}

fn retrieved(since: &str) -> Value {
    condition("PrincipalCredentialRetrieved", "True", "Retrieved", "", since)
}

/// The status if the identity may not be used.
fn usage(status: &str, reason: &str, message: &str) -> Value {
    let usage = condition("PrincipalUsageAllowed", status, reason, message, NOW);
    json!({"status": {"conditions": [usage, retrieved(EARLIER)]}})
}

/// The status if there are no credentials.
fn retrieval(status: &str, reason: &str, message: &str) -> Value {
    let retrieval = condition("PrincipalCredentialRetrieved", status, reason, message, NOW);
    json!({"status": {"conditions": [allowed(EARLIER), retrieval]}})
}

fn nobody_may(identity: &str) -> Value {
    let message = format!("{identity} does not allow the namespace team");
    usage("False", "PrincipalUsageUnauthorized", &message)
}

/// Needs that a binding may leave out. The policy works without them.
pub fn optional() -> [Need; 2] {
    [
        Need::create_of::<AwsClusterControllerIdentity>(),
        Need::objects_of::<AwsServiceAccountIdentity>(),
    ]
}

/// A pass over an object in a world with a namespace and a session.
fn case(object: Value) -> Case {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "team", "uid": "uid-ns", "labels": {"env": "prod", "team": "a"}},
    });
    Case::new("CAPA-", object)
        .manifest(crate::manifest())
        .grants(optional())
        .step_by_step()
        .exists(namespace)
        .secret(json!({"exists": true, "keys": ["AccessKeyID", "SecretAccessKey"], "digest": "d-1"}))
        .account("111", true)
        .answers("create", json!({"uid": "uid-new"}))
        .next(Next::settled_for(Duration::from_secs(600)))
}

fn stored_cluster(spec: Value) -> Value {
    let mut cluster = object("AWSCluster", "c-1", Some("team"), spec);
    cluster["metadata"]["ownerReferences"] = json!([capi_owner()]);
    cluster["status"] = json!({"accountID": "111", "conditions": [allowed(EARLIER), retrieved(EARLIER)]});
    cluster
}

/// A cluster that was judged before, without an identity.
fn undefaulted() -> Case {
    case(stored_cluster(json!({"region": "eu-central-1"})))
}

/// A cluster that was judged before, and its identity.
fn cluster(kind: &str, name: &str) -> Case {
    let spec = json!({"region": "eu-central-1", "identityRef": {"kind": kind, "name": name}});
    case(stored_cluster(spec))
        .edited(|object| object["metadata"]["ownerReferences"] = json!([capi_owner(), owner(kind, name)]))
}

fn by_controller() -> Case {
    cluster("AWSClusterControllerIdentity", "default")
}

fn by_keys() -> Case {
    cluster("AWSClusterStaticIdentity", "keys")
}

fn by_role() -> Case {
    cluster("AWSClusterRoleIdentity", "role")
}

fn controller(allowed: Value) -> Value {
    object(
        "AWSClusterControllerIdentity",
        "default",
        None,
        json!({"allowedNamespaces": allowed}),
    )
}

fn keys(allowed: Value) -> Value {
    let spec = json!({"allowedNamespaces": allowed, "secretRef": {"name": "aws-keys"}});
    object("AWSClusterStaticIdentity", "keys", None, spec)
}

fn role(name: &str, allowed: Value, source: Option<(&str, &str)>) -> Value {
    let mut spec = json!({"allowedNamespaces": allowed, "roleARN": format!("arn:{name}")});
    if let Some((kind, name)) = source {
        spec["sourceIdentityRef"] = json!({"kind": kind, "name": name});
    }
    object("AWSClusterRoleIdentity", name, None, spec)
}

const ROLE_KIND: &str = "AWSClusterRoleIdentity";
const FROM_CONTROLLER: Option<(&str, &str)> = Some(("AWSClusterControllerIdentity", "default"));

/// A machine of the cluster `c-1`, of a kind of another team.
fn machine() -> Case {
    case(json!({
        "apiVersion": "capv.polity.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "m-1", "namespace": "team", "uid": "uid-m-1",
            "labels": {"cluster.x-k8s.io/cluster-name": "c-1"},
        },
        "spec": {"template": "ubuntu"},
        "status": {"conditions": [allowed(EARLIER), retrieved(EARLIER)]},
    }))
}

/// `allowedNamespaces` of the controller's identity, on a cluster without an identityRef.
fn row(allowed: Value) -> Case {
    undefaulted()
        .exists(controller(allowed))
        .edited(|object| {
            let spec = json!({"kind": "AWSClusterControllerIdentity", "name": "default"});
            object["spec"]["identityRef"] = spec;
            let owners = json!([capi_owner(), owner("AWSClusterControllerIdentity", "default")]);
            object["metadata"]["ownerReferences"] = owners;
        })
        .step([DEFAULT])
}

/// The rows about `allowedNamespaces`.
trait Row {
    fn allows(self, ids: &str) -> Self;
    fn denies(self, ids: &str) -> Self;
    fn denies_for_an_unknown_field(self, field: &str) -> Self;
    fn cannot_be_understood(self, wrong: &str) -> Self;
}

impl Row for Case {
    fn allows(self, ids: &str) -> Self {
        self.step([AMBIENT])
            .notes(&format!("01 02 03 05 {ids} 07a P1 07 09 10 24 16 18 19"))
            .granted()
    }

    fn denies(self, ids: &str) -> Self {
        self.notes(&format!("01 02 03 05 {ids} 07b"))
            .patch(nobody_may(DEFAULT))
            .denied("PrincipalUsageUnauthorized")
    }

    fn denies_for_an_unknown_field(self, field: &str) -> Self {
        let message = format!(
            "{DEFAULT} does not allow the namespace team: its allowedNamespaces have the unknown field {field:?}"
        );
        self.notes("01 02 03 05 N12 07b")
            .patch(usage("False", "PrincipalUsageUnauthorized", &message))
            .denied("PrincipalUsageUnauthorized")
    }

    fn cannot_be_understood(self, wrong: &str) -> Self {
        let message = format!("allowedNamespaces of {DEFAULT} cannot be understood: {wrong}");
        self.notes("01 02 03 05 N9")
            .patch(usage("Unknown", "AllowedNamespacesInvalid", &message))
            .denied("AllowedNamespacesInvalid")
    }
}

polity_sdk::cases! { $ each_case of capa_identity::cases;

// Which cluster.

capa_01_a_machine_of_another_team_is_judged_by_its_cluster_and_nothing_is_written_there:
    machine()
        .exists(by_controller().object().clone()).exists(controller(json!({})))
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 N2 07a P1 07 09 10 24 16 18 19")
        .granted();

capa_01_what_a_machine_says_of_identities_itself_counts_for_nothing:
    machine()
        .edited(|object| {
            object["metadata"]["ownerReferences"] = json!([capi_owner()]);
            object["spec"]["identityRef"] = json!({"kind": "AWSClusterRoleIdentity", "name": "role"});
            object["spec"]["region"] = "us-east-1".into();
            object["spec"]["accountID"] = "111".into();
        })
        .exists(by_controller().object().clone()).exists(controller(json!({}))).exists(role("role", json!({}), None))
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 N2 07a P1 07 09 10 24 16 18 19")
        .granted();

capa_01_an_aws_machine_may_name_its_cluster_in_its_spec:
    case(object("AWSMachine", "m-1", Some("team"), json!({"clusterName": "c-1"})))
        .exists(by_controller().object().clone()).exists(controller(json!({})))
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 N2 07a P1 07 09 10 24 16 18 19")
        .patch(json!({"status": {"conditions": [allowed(NOW), retrieved(NOW)]}}))
        .granted();

capa_01_the_label_that_names_the_cluster_is_the_bindings:
    machine()
        .config(json!({"clusterLabel": "example.com/cluster"}))
        .edited(|object| object["metadata"]["labels"]["example.com/cluster"] = "c-1".into())
        .exists(by_controller().object().clone()).exists(controller(json!({})))
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 N2 07a P1 07 09 10 24 16 18 19")
        .granted();

capa_01_a_machine_without_a_cluster_is_left_alone:
    machine()
        .step([CLUSTER])
        .notes("01")
        .patch(usage("False", "ClusterNotFound", "AWSCluster c-1 does not exist in this namespace"))
        .denied("ClusterNotFound")
        .next(Next::settled());

capa_01_a_machine_that_names_no_cluster_is_left_alone:
    machine()
        .edited(|object| object["metadata"]["labels"] = json!({}))
        .notes("01")
        .patch(usage("False", "ClusterUnknown",
            "neither spec.clusterName nor the label cluster.x-k8s.io/cluster-name names the AWSCluster of this object"))
        .denied("ClusterUnknown")
        .next(Next::settled());

capa_01_a_cluster_of_another_tenant_is_out_of_reach:
    machine()
        .edited(|object| object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = "rich/c-1".into())
        .exists(object("AWSCluster", "c-1", Some("rich"), json!({"region": "eu-central-1"})))
        .step(["AWSCluster team/rich/c-1"])
        .notes("01")
        .patch(usage("False", "ClusterNotFound", "AWSCluster rich/c-1 does not exist in this namespace"))
        .denied("ClusterNotFound")
        .next(Next::settled());

capa_06_a_cluster_that_cannot_be_looked_at_is_looked_at_again_soon:
    machine()
        .fails(CLUSTER, Code::Unavailable)
        .step([CLUSTER])
        .notes("01 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "AWSCluster c-1 cannot be read: no"))
        .denied("PrincipalCredentialRetrievalFailed")
        .retried(Code::Unavailable);

// The identity.

capa_03_a_cluster_scoped_identity_is_fetched_from_no_namespace:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 09 10 24 16 18 19")
        .granted();

capa_04_an_identity_beside_its_cluster_is_fetched_from_there:
    cluster("AWSServiceAccountIdentity", "irsa")
        .config(json!({"serviceAccountIdentities": true}))
        .exists(object("AWSServiceAccountIdentity", "irsa", Some("team"), json!({
            "allowedNamespaces": {"list": ["team"]}, "roleARN": "arn:irsa", "audiences": ["sts.amazonaws.com"],
        })))
        .step(["AWSServiceAccountIdentity team/irsa"])
        .step([concat!(
            r#"credential {"region":"eu-central-1","chain":[{"webIdentity":{"identity":{"#,
            r#""kind":"AWSServiceAccountIdentity","name":"irsa","uid":"uid-irsa"},"namespace":"team","name":"irsa","#,
            r#""arn":"arn:irsa","audiences":["sts.amazonaws.com"],"expirationSeconds":3600}}]}"#
        )])
        .notes("01 02 04 05 N3 07a P9 07 09 10 24 16 18 19")
        .granted();

capa_04_no_token_is_asked_for_that_kubernetes_refuses_as_too_short:
    cluster("AWSServiceAccountIdentity", "irsa")
        .config(json!({"serviceAccountIdentities": true}))
        .exists(object("AWSServiceAccountIdentity", "irsa", Some("team"), json!({
            "allowedNamespaces": {"list": ["team"]}, "roleARN": "arn:irsa", "audiences": ["sts.amazonaws.com"],
            "expirationSeconds": 60,
        })))
        .step(["AWSServiceAccountIdentity team/irsa"])
        .step([concat!(
            r#"credential {"region":"eu-central-1","chain":[{"webIdentity":{"identity":{"#,
            r#""kind":"AWSServiceAccountIdentity","name":"irsa","uid":"uid-irsa"},"namespace":"team","name":"irsa","#,
            r#""arn":"arn:irsa","audiences":["sts.amazonaws.com"],"expirationSeconds":600}}]}"#
        )])
        .notes("01 02 04 05 N3 07a P9 07 09 10 24 16 18 19")
        .granted();

capa_04_without_the_bindings_leave_such_a_kind_is_unknown:
    cluster("AWSServiceAccountIdentity", "irsa")
        .notes("01 02 04 06 P5")
        .patch(retrieval("False", "UnknownIdentityKind", "AWSServiceAccountIdentity is not a kind of identity"))
        .denied("UnknownIdentityKind");

capa_05_the_identity_becomes_an_owner_beside_the_cluster_that_controls:
    by_keys()
        .edited(|object| object["metadata"]["ownerReferences"] = json!([capi_owner()]))
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 09 10 24 16 18 19")
        .patch(json!({"metadata": {"ownerReferences": [capi_owner(), owner("AWSClusterStaticIdentity", "keys")]}}))
        .granted();

capa_05_an_identity_that_was_made_anew_takes_the_place_of_the_old_one:
    by_keys()
        .edited(|object| object["metadata"]["ownerReferences"][1]["uid"] = "uid-old".into())
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 09 10 24 16 18 19")
        .patch(json!({"metadata": {"ownerReferences": [capi_owner(), owner("AWSClusterStaticIdentity", "keys")]}}))
        .granted();

capa_05_an_only_owner_would_take_the_cluster_with_it_and_is_not_set:
    by_keys()
        .edited(|object| object["metadata"]["ownerReferences"] = json!([]))
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 N3 07a P2 07 09 10 24 16 18 19")
        .granted();

capa_05_an_only_owner_is_set_where_the_binding_says_so:
    by_keys()
        .config(json!({"ownerReference": "Always"}))
        .edited(|object| object["metadata"]["ownerReferences"] = json!([]))
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 09 10 24 16 18 19")
        .patch(json!({"metadata": {"ownerReferences": [owner("AWSClusterStaticIdentity", "keys")]}}))
        .granted();

capa_05_no_owner_is_set_where_the_binding_says_so:
    by_keys()
        .config(json!({"ownerReference": "Never"}))
        .edited(|object| object["metadata"]["ownerReferences"] = json!([capi_owner()]))
        .exists(keys(json!({"list": ["team"]})))
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 N3 07a P2 07 09 10 24 16 18 19")
        .granted();

capa_06_a_missing_identity_is_waited_for:
    by_role()
        .step([ROLE])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "AWSClusterRoleIdentity role does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_06_an_identity_that_cannot_be_looked_at_is_looked_at_again_soon:
    by_role()
        .fails(ROLE, Code::Unavailable)
        .step([ROLE])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "AWSClusterRoleIdentity role cannot be read: no"))
        .denied("PrincipalCredentialRetrievalFailed")
        .retried(Code::Unavailable);

capa_06_an_identity_of_another_namespace_is_not_looked_at:
    by_keys()
        .edited(|object| object["spec"]["identityRef"]["namespace"] = "rich".into())
        .notes("01 02 03 06")
        .patch(retrieval("False", "IdentityInOtherNamespace",
            "AWSClusterStaticIdentity keys is named in another namespace than the cluster's"))
        .denied("IdentityInOtherNamespace");

capa_06_a_service_account_identity_of_another_namespace_is_not_looked_at:
    cluster("AWSServiceAccountIdentity", "irsa")
        .config(json!({"serviceAccountIdentities": true}))
        .edited(|object| object["spec"]["identityRef"]["namespace"] = "rich".into())
        .notes("01 02 04 06")
        .patch(retrieval("False", "IdentityInOtherNamespace",
            "AWSServiceAccountIdentity irsa is named in another namespace than the cluster's"))
        .denied("IdentityInOtherNamespace");

capa_06_a_missing_secret_is_waited_for:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .secret(json!({"exists": false}))
        .step([STATIC]).step([SECRET])
        .notes("01 02 03 05 N3 07a 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "Secret capa-system/aws-keys does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_06_a_secret_without_its_keys_is_waited_for:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .secret(json!({"exists": true, "keys": ["AccessKeyID"], "digest": "d-1"}))
        .step([STATIC]).step([SECRET])
        .notes("01 02 03 05 N3 07a 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "Secret capa-system/aws-keys has no key SecretAccessKey"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_06_a_secret_that_cannot_be_looked_at_is_looked_at_again_soon:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .fails(SECRET, Code::DeadlineExceeded)
        .step([STATIC]).step([SECRET])
        .notes("01 02 03 05 N3 07a 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "Secret aws-keys cannot be read: no"))
        .denied("PrincipalCredentialRetrievalFailed")
        .retried(Code::DeadlineExceeded);

capa_07b_a_denied_namespace_calls_no_cloud:
    by_keys()
        .exists(keys(json!({"list": ["other"]})))
        .step([STATIC])
        .notes("01 02 03 05 N4 07b")
        .patch(nobody_may(STATIC))
        .denied("PrincipalUsageUnauthorized");

capa_07b_a_machine_of_a_denied_cluster_is_denied:
    machine()
        .exists(by_keys().object().clone()).exists(keys(json!({"list": ["other"]})))
        .step([CLUSTER]).step([STATIC])
        .notes("01 02 03 N4 07b")
        .patch(nobody_may(STATIC))
        .denied("PrincipalUsageUnauthorized");

capa_08_a_new_session_is_made:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .account("111", false)
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 08 10 14 16 18 19")
        .granted();

capa_09_a_known_session_is_used_again:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .account("111", true)
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 09 10 24 16 18 19")
        .granted();

// Without an identityRef.

capa_11_a_cluster_without_an_identity_gets_the_controllers:
    case(object("AWSCluster", "c-1", Some("team"), json!({"region": "eu-central-1"})))
        .exists(controller(json!({})))
        .account("111", false)
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 11 N2 12 14 16 17 18 19")
        .patch(json!({
            "spec": {"identityRef": {"kind": "AWSClusterControllerIdentity", "name": "default"}},
            "status": {"accountID": "111", "conditions": [allowed(NOW), retrieved(NOW)]},
        }))
        .granted();

capa_11_a_machine_of_such_a_cluster_writes_nothing_there:
    machine()
        .exists(undefaulted().object().clone()).exists(controller(json!({})))
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 11 N2 12 24 16 18 19")
        .granted();

capa_13_the_controllers_identity_may_allow_nobody:
    undefaulted()
        .exists(controller(Value::Null))
        .step([DEFAULT])
        .notes("01 11 N1 13")
        .patch({
            let mut patch = nobody_may(DEFAULT);
            patch["spec"] = json!({"identityRef": {"kind": "AWSClusterControllerIdentity", "name": "default"}});
            patch
        })
        .denied("PrincipalUsageUnauthorized");

capa_06_a_missing_controllers_identity_is_waited_for_by_machines:
    machine()
        .exists(undefaulted().object().clone())
        .step([CLUSTER]).step([DEFAULT])
        .notes("01 11 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "AWSClusterControllerIdentity default does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_23_a_missing_controllers_identity_is_made:
    by_controller()
        .step([DEFAULT]).step([CREATE])
        .notes("01 02 03 23")
        .patch(retrieval("False", "ControllerIdentityCreated",
            "AWSClusterControllerIdentity default was missing and has been created"))
        .denied("ControllerIdentityCreated")
        .next(Next::After(1_000));

capa_25_somebody_else_may_have_made_it_first:
    by_controller()
        .fails(CREATE, Code::AlreadyExists)
        .step([DEFAULT]).step([CREATE])
        .notes("01 02 03 25")
        .patch(retrieval("False", "ControllerIdentityAppeared",
            "AWSClusterControllerIdentity default was missing and has appeared meanwhile"))
        .denied("ControllerIdentityAppeared")
        .next(Next::After(1_000));

capa_06_without_a_grant_to_make_it_a_missing_controllers_identity_is_waited_for:
    by_controller()
        .fails(CREATE, Code::PermissionDenied)
        .step([DEFAULT]).step([CREATE])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "AWSClusterControllerIdentity default does not exist and cannot be created: no"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_06_a_missing_controllers_identity_is_not_made_where_the_binding_says_so:
    by_controller()
        .config(json!({"autoCreateControllerIdentity": false}))
        .step([DEFAULT])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "AWSClusterControllerIdentity default does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

// The account.

capa_15_another_account_than_the_known_one_is_denied_and_nothing_else_changes:
    by_controller()
        .exists(controller(json!({})))
        .account("222", true)
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 09 10 24 15")
        .patch(json!({"status": {"conditions": [allowed(EARLIER), retrieved(EARLIER), condition(
            "AccountMatches", "False", "AccountMismatch",
            "the credentials of arn:me belong to account 222, but the cluster is in 111", NOW,
        )]}}))
        .denied("AccountMismatch");

capa_15_the_account_of_the_spec_counts_before_any_is_known:
    by_controller()
        .edited(|object| {
            object["spec"]["accountID"] = "333".into();
            object["status"]["accountID"] = Value::Null;
        })
        .exists(controller(json!({})))
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 09 10 24 15")
        .patch(json!({"status": {"conditions": [allowed(EARLIER), retrieved(EARLIER), condition(
            "AccountMatches", "False", "AccountMismatch",
            "the credentials of arn:me belong to account 111, but the cluster is in 333", NOW,
        )]}}))
        .denied("AccountMismatch");

capa_15_a_machine_of_a_cluster_in_another_account_is_denied:
    machine()
        .exists(by_controller().object().clone()).exists(controller(json!({})))
        .account("222", true)
        .step([CLUSTER]).step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 N2 07a P1 07 09 10 24 15")
        .patch(json!({"status": {"conditions": [allowed(EARLIER), retrieved(EARLIER), condition(
            "AccountMatches", "False", "AccountMismatch",
            "the credentials of arn:me belong to account 222, but the cluster is in 111", NOW,
        )]}}))
        .denied("AccountMismatch");

capa_16_the_right_account_again_is_said:
    by_controller()
        .edited(|object| {
            let mismatch = condition("AccountMatches", "False", "AccountMismatch", "was 222", EARLIER);
            object["status"]["conditions"] = json!([allowed(EARLIER), retrieved(EARLIER), mismatch]);
        })
        .exists(controller(json!({})))
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 09 10 24 16 18 19")
        .patch(json!({"status": {"conditions": [
            allowed(EARLIER), retrieved(EARLIER), condition("AccountMatches", "True", "AccountMatches", "", NOW),
        ]}}))
        .granted();

capa_17_the_account_is_written_once:
    by_controller()
        .edited(|object| object["status"]["accountID"] = Value::Null)
        .exists(controller(json!({})))
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 09 10 24 16 17 18 19")
        .patch(json!({"status": {"accountID": "111"}}))
        .granted();

capa_21_a_principal_that_is_not_known_yet_is_tried_again_soon:
    by_keys()
        .exists(keys(json!({"list": ["team"]})))
        .no_session(Code::Unauthenticated)
        .step([STATIC]).step([SECRET]).step([STATIC_PLAN])
        .notes("01 02 03 05 N3 07a P2 07 21")
        .patch(retrieval("Unknown", "CredentialProviderBuildFailed", "no session could be opened: no"))
        .denied("CredentialProviderBuildFailed")
        .retried(Code::Unauthenticated);

capa_21_a_role_that_may_not_be_assumed_yet_is_tried_again_soon:
    by_role()
        .exists(role("role", json!({}), None))
        .no_session(Code::PermissionDenied)
        .step([ROLE]).step([&role_plan(&["role"])])
        .notes("01 02 03 05 N2 07a P4 07 21")
        .patch(retrieval("Unknown", "CredentialProviderBuildFailed", "no session could be opened: no"))
        .denied("CredentialProviderBuildFailed")
        .retried(Code::PermissionDenied);

capa_21_a_plan_that_the_cloud_does_not_know_is_tried_again_at_the_resync:
    by_controller()
        .exists(controller(json!({})))
        .no_session(Code::InvalidArgument)
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 21")
        .patch(retrieval("Unknown", "CredentialProviderBuildFailed", "no session could be opened: no"))
        .denied("CredentialProviderBuildFailed");

// Deletion.

capa_22_a_deleting_cluster_whose_identity_is_gone_is_let_go_where_the_binding_says_so:
    by_role()
        .deleting()
        .config(json!({"orphanOnMissingIdentity": true}))
        .step([ROLE])
        .notes("01 02 03 06 22")
        .released();

capa_22_a_deleting_machine_whose_clusters_identity_is_gone_is_let_go_too:
    machine()
        .deleting()
        .config(json!({"orphanOnMissingIdentity": true}))
        .exists(by_role().object().clone())
        .step([CLUSTER]).step([ROLE])
        .notes("01 02 03 06 22")
        .released();

capa_22_a_deleting_cluster_makes_no_identity:
    by_controller()
        .deleting()
        .config(json!({"orphanOnMissingIdentity": true}))
        .step([DEFAULT])
        .notes("01 02 03 06 22")
        .released();

a_deleting_cluster_is_not_let_go_because_its_identity_cannot_be_looked_at:
    by_role()
        .deleting()
        .config(json!({"orphanOnMissingIdentity": true}))
        .fails(ROLE, Code::Unavailable)
        .step([ROLE])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "AWSClusterRoleIdentity role cannot be read: no"))
        .denied("PrincipalCredentialRetrievalFailed")
        .retried(Code::Unavailable);

a_deleting_cluster_is_not_let_go_because_of_a_secret:
    by_keys()
        .deleting()
        .config(json!({"orphanOnMissingIdentity": true}))
        .exists(keys(json!({"list": ["team"]})))
        .secret(json!({"exists": false}))
        .step([STATIC]).step([SECRET])
        .notes("01 02 03 05 N3 07a 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "Secret capa-system/aws-keys does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

a_deleting_cluster_with_its_identity_is_handed_over_like_any_other:
    by_controller()
        .deleting()
        .exists(controller(json!({})))
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 02 03 05 N2 07a P1 07 09 10 24 16 18 19")
        .granted();

// Which namespaces.

capa_n1_absent_allows_nobody:
    row(Value::Null).denies("N1");

capa_n2_empty_allows_everybody:
    row(json!({})).allows("N2");

capa_n2_nothing_but_nulls_is_empty:
    row(json!({"list": null, "selector": null})).allows("N2");

capa_n3_a_listed_namespace_is_allowed:
    row(json!({"list": ["other", "team"]})).allows("N3");

capa_n3_a_listed_namespace_needs_no_selector:
    row(json!({"list": ["team"], "selector": {"matchExpressions": [{"key": "", "operator": "Bad"}]}})).allows("N3");

capa_n4_a_namespace_that_is_not_listed_is_denied:
    row(json!({"list": ["other"]})).denies("N4");

capa_n4_an_empty_selector_adds_nobody_to_a_list:
    row(json!({"list": ["other"], "selector": {}})).denies("N4");

capa_n5_an_empty_list_is_not_empty:
    row(json!({"list": []})).denies("N5");

capa_n5_an_empty_list_and_an_empty_selector_allow_nobody:
    row(json!({"list": [], "selector": {}})).denies("N5");

capa_n5_an_empty_selector_alone_allows_nobody:
    row(json!({"selector": {}})).denies("N5");

capa_n6_a_selector_of_empty_parts_allows_nobody:
    row(json!({"selector": {"matchLabels": {}}})).denies("N6");

capa_n6_empty_expressions_are_empty_parts:
    row(json!({"list": [], "selector": {"matchLabels": null, "matchExpressions": []}})).denies("N6");

capa_n7_matching_labels_allow:
    row(json!({"selector": {"matchLabels": {"env": "prod"}}})).step([NAMESPACE]).allows("N7");

capa_n7_labels_and_expressions_must_all_hold:
    row(json!({"selector": {"matchLabels": {"env": "prod"}, "matchExpressions": [
            {"key": "team", "operator": "In", "values": ["a", "b"]},
            {"key": "env", "operator": "NotIn", "values": ["test"]},
            {"key": "env", "operator": "Exists"},
            {"key": "frozen", "operator": "DoesNotExist"},
        ]}}))
        .step([NAMESPACE]).allows("N7");

capa_n8_other_labels_deny:
    row(json!({"selector": {"matchLabels": {"env": "test"}}})).step([NAMESPACE]).denies("N8");

capa_n8_one_expression_that_does_not_hold_is_enough:
    row(json!({"selector": {"matchLabels": {"env": "prod"}, "matchExpressions": [
            {"key": "team", "operator": "NotIn", "values": ["a"]},
        ]}}))
        .step([NAMESPACE]).denies("N8");

capa_n9_an_unknown_operator_is_an_error:
    row(json!({"selector": {"matchExpressions": [{"key": "env", "operator": "Like", "values": ["p"]}]}}))
        .cannot_be_understood("unknown variant `Like`, expected one of `In`, `NotIn`, `Exists`, `DoesNotExist`");

capa_n9_an_operator_without_its_values_is_an_error:
    row(json!({"selector": {"matchExpressions": [{"key": "env", "operator": "In"}]}}))
        .cannot_be_understood("In of the label \"env\" with the values [] means nothing");

capa_n9_a_list_that_is_none_is_an_error:
    row(json!({"list": "team"})).cannot_be_understood("its list is not a list");

capa_n9_a_selector_that_is_none_is_an_error:
    row(json!({"selector": "env=prod"})).cannot_be_understood("its selector is not an object");

capa_n9_anything_but_an_object_is_an_error:
    row(json!("team")).cannot_be_understood("it is not an object");

capa_n10_a_selector_may_allow_who_is_not_listed:
    row(json!({"list": ["other"], "selector": {"matchLabels": {"env": "prod"}}}))
        .step([NAMESPACE]).allows("N10 N7");

capa_n10_neither_list_nor_selector:
    row(json!({"list": ["other"], "selector": {"matchLabels": {"env": "test"}}}))
        .step([NAMESPACE]).denies("N10 N8");

capa_n11_what_lives_in_no_namespace_is_in_no_list:
    case(object("Fleet", "f-1", None, json!({"region": "eu-central-1"})))
        .exists(controller(json!({"list": [""], "selector": {"matchLabels": {"env": "prod"}}})))
        .step([DEFAULT])
        .notes("01 11 N11 13")
        .patch(json!({"status": {"conditions": [condition(
            "PrincipalUsageAllowed", "False", "PrincipalUsageUnauthorized",
            "AWSClusterControllerIdentity default does not allow cluster-scoped objects", NOW,
        )]}}))
        .denied("PrincipalUsageUnauthorized");

capa_n2_what_lives_in_no_namespace_is_allowed_with_everybody:
    case(object("Fleet", "f-1", None, json!({"region": "eu-central-1"})))
        .exists(controller(json!({})))
        .step([DEFAULT]).step([AMBIENT])
        .notes("01 11 N2 12 24 16 18 19")
        .patch(json!({"status": {"conditions": [allowed(NOW), retrieved(NOW)]}}))
        .granted();

capa_06_a_namespace_that_cannot_be_looked_at_allows_nobody:
    row(json!({"selector": {"matchLabels": {"env": "prod"}}}))
        .fails(NAMESPACE, Code::Unavailable)
        .step([NAMESPACE])
        .notes("01 02 03 05 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "Namespace team cannot be read: no"))
        .denied("PrincipalCredentialRetrievalFailed")
        .retried(Code::Unavailable);

// An API server that drops an unknown field leaves `{}`, which would allow every namespace.
capa_n12_a_misspelt_list_allows_nobody:
    row(json!({"lst": ["other"]})).denies_for_an_unknown_field("lst");

capa_n12_nor_does_anything_beside_it:
    row(json!({"list": ["team"], "selektor": {"matchLabels": {"env": "prod"}}}))
        .denies_for_an_unknown_field("selektor");

capa_n12_a_source_with_an_unknown_field_is_not_assumed:
    by_role()
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .exists(role("inner", json!({"lists": ["team"]}), FROM_CONTROLLER))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .notes("01 02 03 05 N2 07a P3 N12 P8 P6")
        .patch(usage("False", "SourcePrincipalUsageUnauthorized",
            "AWSClusterRoleIdentity inner does not allow the namespace team: \
             its allowedNamespaces have the unknown field \"lists\""))
        .denied("SourcePrincipalUsageUnauthorized");

capa_n9_a_misspelt_selector_is_an_error:
    row(json!({"selector": {"matchLabel": {"env": "prod"}}}))
        .cannot_be_understood("unknown field `matchLabel`, expected `matchLabels` or `matchExpressions`");

capa_06_a_misspelt_field_of_a_role_does_not_widen_it:
    by_role()
        .exists({
            let mut role = role("role", json!({}), None);
            role["spec"]["inlinePolcy"] = "{}".into();
            role
        })
        .step([ROLE])
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", UNKNOWN_FIELD))
        .denied("PrincipalCredentialRetrievalFailed")
        .fails_with(RetryClass::Short, Code::Internal, NOT_EXPECTED);

// The chain.

capa_p1_there_is_one_controllers_identity:
    cluster("AWSClusterControllerIdentity", "mine")
        .notes("01 02 03 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed",
            "the only AWSClusterControllerIdentity is default, not mine"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_p3_a_role_is_assumed_from_its_source:
    by_role()
        .exists(role("role", json!({}), FROM_CONTROLLER)).exists(controller(json!({})))
        .step([ROLE]).step([DEFAULT]).step([&role_plan(&["role"])])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P1 07 09 10 24 16 18 19")
        .granted();

capa_p3_inner_roles_come_first:
    by_role()
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .exists(role("inner", json!({}), FROM_CONTROLLER)).exists(controller(json!({})))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"]).step([DEFAULT]).step([&role_plan(&["inner", "role"])])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P3 N2 P8 P1 07 09 10 24 16 18 19")
        .granted();

capa_p3_all_of_a_role_is_in_the_plan_and_a_chained_one_lives_an_hour_at_most:
    by_role()
        .exists({
            let mut outer = role("role", json!({}), Some((ROLE_KIND, "inner")));
            for (field, value) in [
                ("durationSeconds", json!(43_200)), ("sessionName", json!("s")), ("externalID", json!("x")),
                ("inlinePolicy", json!("{}")), ("policyARNs", json!(["arn:p"])),
            ] {
                outer["spec"][field] = value;
            }
            outer
        })
        .exists({
            let mut inner = role("inner", json!({}), None);
            inner["spec"]["durationSeconds"] = json!(7_200);
            inner
        })
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .step([concat!(
            r#"credential {"region":"eu-central-1","chain":["#,
            r#"{"role":{"identity":{"kind":"AWSClusterRoleIdentity","name":"inner","uid":"uid-inner"},"#,
            r#""arn":"arn:inner","durationSeconds":7200}},"#,
            r#"{"role":{"identity":{"kind":"AWSClusterRoleIdentity","name":"role","uid":"uid-role"},"#,
            r#""arn":"arn:role","sessionName":"s","durationSeconds":3600,"externalId":"x","inlinePolicy":"{}","#,
            r#""policyARNs":["arn:p"]}}]}"#
        )])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P4 07 09 10 24 16 18 19")
        .granted();

capa_p3_a_role_may_be_assumed_from_the_keys_of_a_secret:
    by_role()
        .exists(role("role", json!({}), Some(("AWSClusterStaticIdentity", "keys")))).exists(keys(json!({})))
        .step([ROLE]).step([STATIC]).step([SECRET])
        .step([concat!(
            r#"credential {"region":"eu-central-1","chain":[{"secret":{"identity":{"#,
            r#""kind":"AWSClusterStaticIdentity","name":"keys","uid":"uid-keys"},"namespace":"capa-system","#,
            r#""name":"aws-keys","digest":"d-1"}},{"role":{"identity":{"kind":"AWSClusterRoleIdentity","#,
            r#""name":"role","uid":"uid-role"},"arn":"arn:role","durationSeconds":900}}]}"#
        )])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P2 07 09 10 24 16 18 19")
        .granted();

capa_p4_a_role_without_a_source_is_assumed_by_the_controller:
    by_role()
        .exists(role("role", json!({}), None))
        .step([ROLE]).step([&role_plan(&["role"])])
        .notes("01 02 03 05 N2 07a P4 07 09 10 24 16 18 19")
        .granted();

capa_p5_an_unknown_kind_is_not_looked_at:
    cluster("Secret", "keys")
        .notes("01 02 04 06 P5")
        .patch(retrieval("False", "UnknownIdentityKind", "Secret is not a kind of identity"))
        .denied("UnknownIdentityKind");

capa_p5_an_unknown_kind_of_source_is_not_looked_at:
    by_role()
        .exists(role("role", json!({}), Some(("Secret", "keys"))))
        .step([ROLE])
        .notes("01 02 03 05 N2 07a P3 P5")
        .patch(retrieval("False", "UnknownIdentityKind", "Secret is not a kind of identity"))
        .denied("UnknownIdentityKind");

capa_p6_a_source_that_denies_is_not_assumed:
    by_role()
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .exists(role("inner", json!({"list": ["other"]}), FROM_CONTROLLER)).exists(controller(json!({})))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .notes("01 02 03 05 N2 07a P3 N4 P8 P6")
        .patch(usage("False", "SourcePrincipalUsageUnauthorized",
            "AWSClusterRoleIdentity inner does not allow the namespace team"))
        .denied("SourcePrincipalUsageUnauthorized");

capa_06_a_missing_source_is_waited_for:
    by_role()
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .notes("01 02 03 05 N2 07a P3 06")
        .patch(retrieval("False", "PrincipalCredentialRetrievalFailed", "AWSClusterRoleIdentity inner does not exist"))
        .denied("PrincipalCredentialRetrievalFailed");

capa_p7_a_chain_that_comes_back_is_an_error:
    by_role()
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .exists(role("inner", json!({}), Some((ROLE_KIND, "role"))))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P3 P7")
        .patch(retrieval("False", "IdentityChainCycle", "the chain of identities is a circle or longer than maxChainLength: role from inner from role"))
        .denied("IdentityChainCycle");

capa_p7_a_chain_that_is_too_long_is_an_error:
    by_role()
        .config(json!({"maxChainLength": 2}))
        .exists(role("role", json!({}), Some((ROLE_KIND, "inner"))))
        .exists(role("inner", json!({}), FROM_CONTROLLER))
        .step([ROLE]).step(["AWSClusterRoleIdentity inner"])
        .notes("01 02 03 05 N2 07a P3 N2 P8 P3 P7")
        .patch(retrieval("False", "IdentityChainCycle",
            "the chain of identities is a circle or longer than maxChainLength: role from inner from default"))
        .denied("IdentityChainCycle");

// What is not in the drawing.

what_others_wrote_is_left_alone:
    by_keys()
        .edited(|object| {
            object["spec"]["network"] = json!({"vpc": "v-1"});
            object["status"]["ready"] = true.into();
            object["status"]["conditions"] = json!([
                {"type": "Ready", "status": "True", "reason": "R", "observedGeneration": 3}, allowed(EARLIER),
            ]);
        })
        .exists(keys(json!({"list": ["other"]})))
        .step([STATIC])
        .notes("01 02 03 05 N4 07b")
        .patch(json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "R", "observedGeneration": 3},
            condition("PrincipalUsageAllowed", "False", "PrincipalUsageUnauthorized",
                "AWSClusterStaticIdentity keys does not allow the namespace team", NOW),
        ]}}))
        .denied("PrincipalUsageUnauthorized");
}
