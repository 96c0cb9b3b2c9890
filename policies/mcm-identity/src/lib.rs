//! Selects the credentials for the cloud of a machine: the credentials in the Secret that the machine's class names,
//! or the connection's own credentials if the class names no Secret.
//!
//! The policy names the Secret and its digest, and never sees a value. It runs before the policy of the machine. The
//! machine's policy is not called while there are no credentials. The connection's own credentials are never used in
//! place of a missing Secret: the machine would be looked for in another account, and would seem to be gone.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;

use mcm_api::{Machine, MachineClass, SecretRef};
use polity_sdk::cloud::session::{self, Identity, Link, Plan, SecretLink};
use polity_sdk::prelude::*;

/// A pass of this policy.
pub type Cx = Context<Machine, Config>;

/// The condition: there are credentials.
const FOUND: &str = "CredentialsFound";

/// The configuration, which a binding sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The keys that the Secret must have.
    pub keys: Vec<String>,
    /// The time until the credentials are looked at again.
    pub resync: Period,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            keys: ["accessKeyID", "secretAccessKey"].map(str::to_owned).to_vec(),
            resync: Period::from_secs(600),
        }
    }
}

/// The manifest: name, needs and writes of the policy.
pub fn manifest() -> Manifest {
    Manifest::identity(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .config::<Config>()
        .needs(Need::Credential)
        .needs(Need::Secrets)
        .needs(Need::objects_of::<MachineClass>())
        .writes(["status.conditions[CredentialsFound]"])
}

/// Decides which credentials are used for the cloud.
#[polity_sdk::policy(identity)]
pub async fn judge(cx: Cx) -> Result<Judgement, Failure> {
    let opened = match plan(&cx).await {
        Ok(plan) => cx.ask(session::open(&plan)).await,
        Err(failure) => Err(failure),
    };
    let mut machine = cx.object_mut();
    let conditions = &mut machine.status.conditions;
    Ok(match opened {
        Ok(credential) => {
            conditions.heal(cx.now(), FOUND, "Found");
            Judgement::granted(credential.handle, Next::settled_for(cx.config().resync))
        }
        Err(failure) => {
            let status = ConditionStatus::False;
            if conditions.announce(cx.now(), FOUND, status, "NoCredentials", &failure.message) {
                cx.event(EventType::Warning, "NoCredentials", &failure.message);
            }
            let class = match is_for_a_person(failure.code) {
                true => RetryClass::Medium,
                false => RetryClass::Short,
            };
            Judgement::denied(Next::failed(class, failure))
        }
    })
}

/// The plan of the session, by the machine's class.
async fn plan(cx: &Cx) -> Result<Plan, Failure> {
    let machine = cx.object();
    let class = cx.ask(cluster::object::<MachineClass>(&machine.spec.class.name));
    let class = class.await.map_err(|failure| {
        let name = &machine.spec.class.name;
        about(failure, format!("MachineClass {name}"))
    })?;
    let chain = match &class.spec.credentials_secret_ref {
        Some(secret) => vec![Link::Secret(link(cx, &class, secret).await?)],
        None => Vec::new(),
    };
    Ok(Plan { region: None, chain })
}

/// The Secret, if it has all required keys.
async fn link(cx: &Cx, class: &MachineClass, secret: &SecretRef) -> Result<SecretLink, Failure> {
    let name = &secret.name;
    let facts = cx.ask(cluster::secret(name)).await.found();
    let facts = facts.map_err(|failure| about(failure, format!("Secret {name}")))?;
    let Some(facts) = facts.filter(|facts| facts.exists) else {
        let message = format!("Secret {name} does not exist");
        return Err(Failure::new(Code::FailedPrecondition, message));
    };
    if let Some(key) = cx.config().keys.iter().find(|key| !facts.keys.contains(key)) {
        let message = format!("Secret {name} has no key {key}");
        return Err(Failure::new(Code::FailedPrecondition, message));
    }
    let metadata = &class.metadata;
    Ok(SecretLink {
        identity: Identity {
            kind: MachineClass::KIND.to_owned(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        },
        namespace: cx.object().metadata.namespace.clone().unwrap_or_default(),
        name: name.clone(),
        digest: facts.digest.unwrap_or_default(),
    })
}

/// Whether only a change of the class or of the Secret helps. A change of the class begins a pass; a Secret is read again later.
fn is_for_a_person(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unauthenticated
            | Code::Unimplemented
    )
}

/// A failure to read an object, with its name.
fn about(failure: Failure, what: String) -> Failure {
    Failure {
        message: format!("{what}: {}", failure.message),
        ..failure
    }
}
