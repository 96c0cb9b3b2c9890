//! Selects the credentials for the cloud of a machine: the credentials in the Secret that the machine's class names,
//! or the connection's own credentials if the class names no Secret.
//!
//! The policy names the Secret and its digest, and never sees a value. It runs before the policy of the machine. If the
//! class or the Secret is missing, the machine's policy runs in a session that every cloud refuses, and reports what is
//! missing. While the cloud refuses the credentials, it is not called. The connection's own credentials are never used in
//! place of a missing Secret: the machine would be looked for in another account, and would seem to be gone.
//!
//! A machine that is being deleted and whose class is missing keeps the credentials that its class had.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;

use mcm_api::{Credentials, Machine, MachineClass, SecretRef};
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
            keys: mcm_api::credential_keys(),
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
        .writes(["status.conditions[CredentialsFound]", "status.credentials"])
}

/// Decides which credentials are used for the cloud.
#[polity_sdk::policy(identity)]
pub async fn judge(cx: Cx) -> Result<Judgement, Failure> {
    let mut missing = None;
    let opened = match plan(&cx).await {
        Ok(Ok((plan, credentials))) => {
            let opened = cx.ask(session::open(&plan)).await;
            if opened.is_ok() {
                cx.object_mut().status.credentials = Some(credentials);
            }
            opened.map(|opened| opened.handle)
        }
        // The machine's policy runs without a cloud: its workflow has edges for what is missing.
        Ok(Err(what)) => {
            missing = Some(what);
            cx.ask(cloud::no_session()).await.map(|none| none.handle)
        }
        Err(failure) => Err(failure),
    };
    let failed = opened.as_ref().err().map(|failure| failure.message.as_str());
    report(&cx, missing.as_deref().or(failed));
    Ok(match opened {
        Ok(handle) => Judgement::granted(handle, Next::settled_for(cx.config().resync)),
        Err(failure) => {
            let class = if is_for_a_person(failure.code) {
                RetryClass::Medium
            } else {
                RetryClass::Short
            };
            Judgement::denied(Next::failed(class, failure))
        }
    })
}

/// Shows on the machine whether there are credentials.
fn report(cx: &Cx, problem: Option<&str>) {
    let mut machine = cx.object_mut();
    let conditions = &mut machine.status.conditions;
    let Some(problem) = problem else {
        conditions.heal(cx.now(), FOUND, "Found");
        return;
    };
    let status = ConditionStatus::False;
    if conditions.announce(cx.now(), FOUND, status, "NoCredentials", problem) {
        cx.event(EventType::Warning, "NoCredentials", problem);
    }
}

/// The plan of the session and its credentials, by the machine's class; or what is missing for it.
async fn plan(cx: &Cx) -> Result<Result<(Plan, Credentials), String>, Failure> {
    let credentials = match credentials(cx).await? {
        Ok(credentials) => credentials,
        Err(missing) => return Ok(Err(missing)),
    };
    let chain = match &credentials.secret_name {
        Some(secret) => match link(cx, &credentials, secret).await? {
            Ok(link) => vec![Link::Secret(link)],
            Err(missing) => return Ok(Err(missing)),
        },
        None => Vec::new(),
    };
    Ok(Ok((Plan { region: None, chain }, credentials)))
}

/// The credentials of the machine's class; or what is missing for them.
async fn credentials(cx: &Cx) -> Result<Result<Credentials, String>, Failure> {
    let object = cx.object();
    let named = &object.spec.class;
    if named.kind != MachineClass::KIND || named.name.is_empty() {
        return Ok(Err("the machine names no MachineClass".to_owned()));
    }
    let class = cx.ask(cluster::object::<MachineClass>(&named.name)).await.found();
    let class = class.map_err(|failure| about(failure, format!("MachineClass {}", named.name)))?;
    Ok(match (class, &object.status.credentials) {
        (Some(class), _) => Ok(Credentials {
            class_name: class.metadata.name,
            class_uid: class.metadata.uid,
            secret_name: class.spec.credentials_secret_ref.map(|secret| secret.name),
        }),
        (None, Some(known)) if object.metadata.deleting() && known.class_name == named.name => {
            Ok(known.clone())
        }
        (None, _) => Err(format!("MachineClass {} does not exist", named.name)),
    })
}

/// The Secret; or what it lacks.
async fn link(cx: &Cx, of: &Credentials, name: &str) -> Result<Result<SecretLink, String>, Failure> {
    let facts = cx.ask(cluster::secret(name)).await.found();
    let facts = facts.map_err(|failure| about(failure, format!("Secret {name}")))?;
    let facts = facts.unwrap_or_default();
    let secret = SecretRef {
        name: name.to_owned(),
    };
    if let Some(lacking) = secret.lacks(&facts, &cx.config().keys) {
        return Ok(Err(lacking));
    }
    Ok(Ok(SecretLink {
        identity: Identity {
            kind: MachineClass::KIND.to_owned(),
            name: of.class_name.clone(),
            uid: of.class_uid.clone(),
        },
        namespace: cx.object().metadata.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
        digest: facts.digest.unwrap_or_default(),
    }))
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
