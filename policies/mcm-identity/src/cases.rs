//! The table of cases: a machine, its class and Secret, and the credentials that the policy asks for.
//!
//! The cases are data. The tests of this crate run them natively, those of the host as a component.
//! [`each_case!`](crate::each_case) makes a test of each case.

use polity_sdk::prelude::*;
use polity_sdk::test::NOW;
use serde_json::{Value, json};

pub use polity_sdk::test::Case;

const CLASS: &str = "MachineClass shoot/small";
const SECRET: &str = "Secret shoot/keys";
const NONE: &str = "credential null";
const OWN: &str = r#"credential {"chain":[]}"#;
const PLAN: &str = concat!(
    r#"credential {"chain":[{"secret":{"identity":{"kind":"MachineClass","name":"small","uid":"uid-c"},"#,
    r#""namespace":"shoot","name":"keys","digest":"d-1"}}]}"#
);

/// The vocabulary of this table.
trait Words: Sized {
    /// The class names the Secret with the credentials.
    fn named(self) -> Self;
    /// The Secret has these keys.
    fn keys(self, keys: &[&str]) -> Self;
    fn session(self) -> Self;
    fn granted(self) -> Self;
    /// The pass remembers the credentials of the class.
    fn kept(self, secret: Option<&str>) -> Self;
    /// The machine's policy runs in the session that opens no cloud, because this is missing.
    fn without_cloud(self, missing: &str) -> Self;
    /// The condition says this.
    fn told(self, message: &str) -> Self;
    fn denied(self, code: Code, message: &str) -> Self;
}

impl Words for Case {
    fn named(self) -> Self {
        self.without("MachineClass")
            .exists(class(json!({"credentialsSecretRef": {"name": "keys"}})))
    }

    fn keys(self, keys: &[&str]) -> Self {
        self.answers("Secret", json!({"exists": true, "keys": keys, "digest": "d-1"}))
    }

    fn session(self) -> Self {
        let attributes = json!({"principal": "arn:me", "account": "123456789012"});
        self.answers(
            "credential",
            json!({"handle": "session-1", "reused": false, "attributes": attributes}),
        )
    }

    fn granted(self) -> Self {
        self.verdict(Verdict::Granted("session-1".to_owned()))
            .next(Next::Settled(Some(600_000)))
    }

    fn kept(self, secret: Option<&str>) -> Self {
        self.patch(json!({"status": {"credentials": kept(secret)}}))
    }

    fn without_cloud(self, missing: &str) -> Self {
        self.step([NONE])
            .told(missing)
            .verdict(Verdict::Granted("none".to_owned()))
            .next(Next::Settled(Some(600_000)))
    }

    fn told(self, message: &str) -> Self {
        let condition = json!([{
            "type": "CredentialsFound", "status": "False", "reason": "NoCredentials", "message": message,
            "lastTransitionTime": NOW,
        }]);
        self.event("NoCredentials")
            .patch(json!({"status": {"conditions": condition}}))
    }

    fn denied(self, code: Code, message: &str) -> Self {
        self.told(message).verdict(Verdict::Denied).next(match code {
            Code::Unavailable => Next::failed(RetryClass::Short, Failure::new(code, message)),
            _ => Next::failed(RetryClass::Medium, Failure::new(code, message)),
        })
    }
}

/// The credentials of the class, as the machine keeps them.
fn kept(secret: Option<&str>) -> Value {
    let mut kept = json!({"className": "small", "classUID": "uid-c"});
    if let Some(secret) = secret {
        kept["secretName"] = secret.into();
    }
    kept
}

/// A machine without a class that is being deleted and keeps these credentials.
fn orphaned(secret: Option<&str>) -> Case {
    machine()
        .without("MachineClass")
        .exists(other())
        .edited(|object| {
            object["metadata"]["deletionTimestamp"] = NOW.into();
            object["metadata"]["finalizers"] = json!(["mcm.polity.dev/machine"]);
            object["status"]["credentials"] = kept(secret);
        })
}

fn class(spec: Value) -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "small", "namespace": "shoot", "uid": "uid-c"}, "spec": spec,
    })
}

/// Another class.
fn other() -> Value {
    let mut other = class(json!({}));
    other["metadata"]["name"] = "other".into();
    other
}

/// A machine whose class names no credentials.
fn machine() -> Case {
    let machine = json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "shoot", "uid": "uid-m"},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    });
    Case::new("MCM-", machine)
        .manifest(crate::manifest())
        .exists(class(json!({})))
        .step_by_step()
        .step([CLASS])
}

polity_sdk::cases! { $ each_case of mcm_identity::cases;

a_class_without_credentials_uses_those_of_the_connection:
    machine().session().step([OWN]).kept(None).granted();

the_secret_of_the_class_is_the_credential:
    machine().named().keys(&["accessKeyID", "secretAccessKey", "userData"]).session()
        .step([SECRET]).step([PLAN])
        .kept(Some("keys"))
        .granted();

a_secret_that_does_not_exist_is_not_replaced_by_the_credentials_of_the_connection:
    machine().named().answers("Secret", json!({"exists": false, "keys": []}))
        .step([SECRET])
        .without_cloud("Secret keys does not exist");

a_secret_that_lacks_a_key_is_none:
    machine().named().keys(&["accessKeyID"])
        .step([SECRET])
        .without_cloud("Secret keys lacks secretAccessKey");

a_class_that_does_not_exist_is_left_to_the_policy_of_the_machine:
    machine().without("MachineClass").exists(other())
        .without_cloud("MachineClass small does not exist");

a_machine_that_is_being_deleted_without_its_class_keeps_its_credentials:
    orphaned(Some("keys")).keys(&["accessKeyID", "secretAccessKey"]).session()
        .step([SECRET]).step([PLAN])
        .granted();

a_machine_that_is_being_deleted_without_its_class_keeps_those_of_the_connection:
    orphaned(None).session().step([OWN]).granted();

a_secret_that_is_gone_too_is_not_replaced:
    orphaned(Some("keys")).answers("Secret", json!({"exists": false, "keys": []}))
        .step([SECRET])
        .without_cloud("Secret keys does not exist");

a_live_machine_without_its_class_has_no_credentials:
    orphaned(Some("keys")).edited(|object| object["metadata"]["deletionTimestamp"] = json!(null))
        .without_cloud("MachineClass small does not exist");

a_machine_that_names_no_class_too:
    machine().edited(|object| object["spec"]["class"] = json!({"kind": "", "name": ""}))
        .step_by_step()
        .without_cloud("the machine names no MachineClass");

which_keys_a_secret_must_have_the_binding_says:
    machine().named().config(json!({"keys": ["token"]})).keys(&["token"]).session()
        .step([SECRET]).step([PLAN])
        .kept(Some("keys"))
        .granted();

a_secret_that_cannot_be_looked_at_is_none:
    machine().named().fails("Secret", Code::PermissionDenied)
        .step([SECRET])
        .denied(Code::PermissionDenied, "Secret keys: no");

a_class_that_cannot_be_looked_at_has_no_credentials:
    machine().fails("MachineClass", Code::Unavailable)
        .denied(Code::Unavailable, "MachineClass small: no");

credentials_that_the_cloud_refuses_are_said:
    machine().fails("credential", Code::Unauthenticated)
        .step([OWN])
        .denied(Code::Unauthenticated, "no");
}
