//! The part of each identity in the credential plan: names and digests, never values.

use polity_sdk::cloud::session::{Identity, Link, Plan, RoleLink, SecretLink, WebIdentityLink};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup::{self, RETRIEVAL_FAILED};
use crate::object::{
    AwsCluster, AwsClusterRoleIdentity, AwsClusterStaticIdentity, AwsServiceAccountIdentity,
};
use crate::stop::Stop;

/// The keys that the Secret of a static identity must have.
const SECRET_KEYS: [&str; 2] = ["AccessKeyID", "SecretAccessKey"];
/// Lifetimes of a role's credentials: default and minimum, maximum, and AWS's maximum for a role that is assumed from
/// a role.
const ROLE_SECONDS: u32 = 900;
const LONGEST_ROLE_SECONDS: u32 = 43_200;
const LONGEST_CHAINED_SECONDS: u32 = 3_600;
/// Lifetimes of a service account's token: default, and Kubernetes' minimum (`ValidateTokenRequest` in
/// `pkg/apis/authentication/validation`).
const TOKEN_SECONDS: u32 = 3_600;
const SHORTEST_TOKEN_SECONDS: u32 = 600;

/// The plan of links, beginning with the source. A role that is assumed from a role does not live longer than AWS
/// allows.
pub(crate) fn plan(cluster: &AwsCluster, mut chain: Vec<Link>) -> Plan {
    let mut from_role = false;
    for link in &mut chain {
        if let (Link::Role(role), true) = (&mut *link, from_role) {
            role.duration_seconds = role.duration_seconds.min(LONGEST_CHAINED_SECONDS);
        }
        from_role = !matches!(link, Link::Secret(_));
    }
    let region = cluster.spec.region.clone();
    Plan { region, chain }
}

/// The Secret of a static identity, by name and digest. It is read only for clusters that may use the identity.
pub(crate) async fn secret(cx: &Cx, identity: &AwsClusterStaticIdentity) -> Result<SecretLink, Stop> {
    let (namespace, name) = (&cx.config().controller_namespace, &identity.spec.secret_ref.name);
    let ask = cluster::secret(name).namespace(namespace);
    let facts = cx.ask(ask).await.found();
    let facts = facts.map_err(|failure| lookup::failed(cx, "Secret", name, failure))?;
    let Some(facts) = facts.filter(|facts| facts.exists) else {
        let message = format!("Secret {namespace}/{name} does not exist");
        return Err(lookup::lacking(cx, RETRIEVAL_FAILED, message));
    };
    if let Some(key) = SECRET_KEYS
        .iter()
        .find(|key| !facts.keys.iter().any(|has| has == *key))
    {
        let message = format!("Secret {namespace}/{name} has no key {key}");
        return Err(lookup::lacking(cx, RETRIEVAL_FAILED, message));
    }
    Ok(SecretLink {
        identity: origin(identity),
        namespace: namespace.clone(),
        name: name.clone(),
        digest: facts.digest.unwrap_or_default(),
    })
}

/// A role, with the lifetime of its credentials.
pub(crate) fn role(identity: AwsClusterRoleIdentity) -> RoleLink {
    let seconds = identity.spec.duration_seconds.unwrap_or(ROLE_SECONDS);
    RoleLink {
        identity: origin(&identity),
        arn: identity.spec.role_arn,
        session_name: identity.spec.session_name,
        duration_seconds: seconds.clamp(ROLE_SECONDS, LONGEST_ROLE_SECONDS),
        external_id: identity.spec.external_id,
        inline_policy: identity.spec.inline_policy,
        policy_arns: identity.spec.policy_arns,
    }
}

/// A role for a token of the service account that has the name and the namespace of the identity.
pub(crate) fn web_identity(identity: AwsServiceAccountIdentity) -> WebIdentityLink {
    let seconds = identity.spec.expiration_seconds.unwrap_or(TOKEN_SECONDS);
    WebIdentityLink {
        identity: origin(&identity),
        namespace: identity.metadata.namespace.clone().unwrap_or_default(),
        name: identity.metadata.name.clone(),
        arn: identity.spec.role_arn,
        audiences: identity.spec.audiences,
        expiration_seconds: seconds.max(SHORTEST_TOKEN_SECONDS),
    }
}

/// Makes the link of an identity that was deleted and created again a different link.
fn origin<K: Kind>(identity: &K) -> Identity {
    Identity {
        kind: K::KIND.to_owned(),
        name: identity.metadata().name.clone(),
        uid: identity.metadata().uid.clone(),
    }
}
