//! From the cluster's identity to a plan of credentials (CAPA-02 to CAPA-07, CAPA-11 to CAPA-13, P1 to P8).

use polity_sdk::OwnerReference;
use polity_sdk::prelude::*;
use polity_sdk::session::{Identity, Link, Plan, RoleLink, SecretLink, WebIdentityLink};

use crate::config::OwnerReferencePolicy;
use crate::lookup::{self, RETRIEVAL_FAILED};
use crate::object::{
    AwsCluster, AwsClusterControllerIdentity, AwsClusterRoleIdentity, AwsClusterStaticIdentity,
    AwsServiceAccountIdentity, DEFAULT, IdentityKind, IdentityRef,
};
use crate::stop::{RETRIEVED, Stop, Wait};
use crate::{Cx, allowed};

/// The keys that a static identity's Secret must have.
const SECRET_KEYS: [&str; 2] = ["AccessKeyID", "SecretAccessKey"];
/// How long a role's credentials live: default and minimum, maximum, and AWS's maximum for a role that is assumed from
/// a role.
const ROLE_SECONDS: u32 = 900;
const LONGEST_ROLE_SECONDS: u32 = 43_200;
const LONGEST_CHAINED_SECONDS: u32 = 3_600;
/// When the cluster is judged again after its identity was made.
const AFTER_CREATION: Period = Period::from_secs(1);

/// The plan of a cluster without an identityRef: the controller's own credentials, written down as its identity.
pub(crate) async fn default(cx: &Cx, cluster: &AwsCluster) -> Result<Plan, Stop> {
    cx.note("CAPA-11");
    if cx.object().is_cluster() {
        cx.object_mut().spec.identity_ref = Some(IdentityRef {
            kind: AwsClusterControllerIdentity::KIND.to_owned(),
            name: DEFAULT.to_owned(),
            namespace: None,
        });
    }
    let identity = controller(cx, DEFAULT).await?;
    let namespace = cluster.metadata.namespace.as_deref();
    let name = named::<AwsClusterControllerIdentity>(DEFAULT);
    if !allowed::namespace(cx, identity.allowed(), namespace, &name).await? {
        cx.note("CAPA-13");
        return Err(unauthorized(cluster, "PrincipalUsageUnauthorized", &name));
    }
    cx.note("CAPA-12");
    Ok(plan(cluster, Vec::new()))
}

/// The plan of a cluster with an identityRef: its identity, and the chain of identities behind that.
pub(crate) async fn of(cx: &Cx, cluster: &AwsCluster, outermost: &IdentityRef) -> Result<Plan, Stop> {
    cx.note("CAPA-02");
    let mut walk = Walk {
        cx,
        cluster,
        seen: Vec::new(),
        links: Vec::new(),
    };
    let mut next = Some(outermost.clone());
    while let Some(reference) = next {
        next = walk.link(&reference).await?;
    }
    walk.links.reverse();
    Ok(plan(cluster, walk.links))
}

/// A plan of links from the source on; a role that is assumed from a role does not live longer than AWS allows.
fn plan(cluster: &AwsCluster, mut chain: Vec<Link>) -> Plan {
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

/// The way from a cluster's identity to its source.
struct Walk<'a> {
    cx: &'a Cx,
    cluster: &'a AwsCluster,
    /// The identities so far; the first is the cluster's own.
    seen: Vec<IdentityRef>,
    /// What they add to the plan, the cluster's own first.
    links: Vec<Link>,
}

impl Walk<'_> {
    /// One identity; answers the one that it is assumed from.
    async fn link(&mut self, reference: &IdentityRef) -> Result<Option<IdentityRef>, Stop> {
        let (cx, config) = (self.cx, self.cx.config());
        let same = |seen: &IdentityRef| (&seen.kind, &seen.name) == (&reference.kind, &reference.name);
        if self.seen.iter().any(same) || self.seen.len() >= config.max_chain_length {
            cx.note("CAPA-P7");
            let message = format!("the chain of identities does not end: {}", self.trail(reference));
            return Err(failed("IdentityChainCycle", message));
        }
        self.seen.push(reference.clone());
        match reference.kind.as_str() {
            AwsClusterControllerIdentity::KIND => {
                self.admit(reference, controller(cx, &reference.name)).await?;
                cx.note("CAPA-P1");
                Ok(None)
            }
            AwsClusterStaticIdentity::KIND => {
                let fetched = lookup::identity::<AwsClusterStaticIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                cx.note("CAPA-P2");
                let secret = secret(cx, &found).await?;
                self.links.push(Link::Secret(secret));
                Ok(None)
            }
            AwsClusterRoleIdentity::KIND => {
                let fetched = lookup::identity::<AwsClusterRoleIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                let source = found.spec.source_identity_ref.clone();
                cx.note(if source.is_some() { "CAPA-P3" } else { "CAPA-P4" });
                self.links.push(Link::Role(role(found)));
                Ok(source)
            }
            AwsServiceAccountIdentity::KIND if config.service_account_identities => {
                let fetched = lookup::identity::<AwsServiceAccountIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                self.links.push(Link::WebIdentity(web_identity(found)));
                Ok(None)
            }
            unknown => {
                let message = format!("{unknown:.60} is no kind of identity");
                if self.is_outermost() {
                    cx.note("CAPA-04");
                    cx.note("CAPA-06");
                }
                cx.note("CAPA-P5");
                Err(failed("UnknownIdentityKind", message))
            }
        }
    }

    fn is_outermost(&self) -> bool {
        self.seen.len() == 1
    }

    /// An identity, fetched, that the cluster's namespace may use. It is fetched from the cluster's own namespace, or
    /// from none, whatever namespace the reference names.
    async fn admit<K: IdentityKind>(
        &self,
        reference: &IdentityRef,
        fetched: impl Future<Output = Result<K, Stop>>,
    ) -> Result<K, Stop> {
        let (cx, own) = (self.cx, self.cluster.metadata.namespace.as_deref());
        if self.is_outermost() {
            cx.note(if K::NAMESPACED { "CAPA-04" } else { "CAPA-03" });
        }
        if reference.namespace.is_some() && reference.namespace.as_deref() != own {
            let message = format!(
                "{} is referred to in another namespace",
                named::<K>(&reference.name)
            );
            return Err(lookup::lacking(cx, "IdentityInOtherNamespace", message));
        }
        let identity = fetched.await?;
        if self.is_outermost() {
            own_by(cx, &identity);
            cx.note("CAPA-07");
        } else {
            cx.note("CAPA-P8");
        }
        let name = named::<K>(&reference.name);
        let allowed = allowed::namespace(cx, identity.allowed(), own, &name).await?;
        match (allowed, self.is_outermost()) {
            (true, true) => cx.note("CAPA-07a"),
            (true, false) => {}
            (false, true) => {
                cx.note("CAPA-07b");
                return Err(unauthorized(self.cluster, "PrincipalUsageUnauthorized", &name));
            }
            (false, false) => {
                cx.note("CAPA-P6");
                let reason = "SourcePrincipalUsageUnauthorized";
                return Err(unauthorized(self.cluster, reason, &name));
            }
        }
        Ok(identity)
    }

    /// The identities so far and the next one.
    fn trail(&self, next: &IdentityRef) -> String {
        let names = self.seen.iter().chain([next]).map(|seen| seen.name.as_str());
        names.collect::<Vec<_>>().join(" from ")
    }
}

/// The controller's own identity, of which there is one. An AWSCluster's pass makes it where it is missing.
async fn controller(cx: &Cx, name: &str) -> Result<AwsClusterControllerIdentity, Stop> {
    if name != DEFAULT {
        let kind = AwsClusterControllerIdentity::KIND;
        let message = format!("the only {kind} is {DEFAULT}, not {name:.253}");
        return Err(lookup::lacking(cx, RETRIEVAL_FAILED, message));
    }
    let primary = cx.object();
    let may_create = primary.is_cluster() && !primary.metadata.deleting();
    match cx
        .ask(cluster::object::<AwsClusterControllerIdentity>(name))
        .await
    {
        Err(failure)
            if failure.is_not_found() && may_create && cx.config().auto_create_controller_identity =>
        {
            Err(create_controller(cx).await)
        }
        answer => {
            answer.map_err(|failure| lookup::no_identity::<AwsClusterControllerIdentity>(cx, name, failure))
        }
    }
}

/// Makes the controller's identity. The next pass looks at it like at any other.
async fn create_controller(cx: &Cx) -> Stop {
    let name = named::<AwsClusterControllerIdentity>(DEFAULT);
    match cx
        .act(cluster::create(&AwsClusterControllerIdentity::open_to_all()))
        .await
    {
        Err(failure) if failure.code != Code::AlreadyExists => {
            let message = format!("{name} does not exist and cannot be made: {}", failure.message);
            lookup::lacking(cx, RETRIEVAL_FAILED, message).for_the_sake_of(failure)
        }
        _ => {
            cx.note("CAPA-23");
            Stop {
                wait: Wait::After(AFTER_CREATION),
                ..failed(
                    "ControllerIdentityCreated",
                    format!("{name} was missing and has been made"),
                )
            }
        }
    }
}

/// The Secret of a static identity, by name and digest. Looked at only for those who may use the identity.
async fn secret(cx: &Cx, identity: &AwsClusterStaticIdentity) -> Result<SecretLink, Stop> {
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

fn role(identity: AwsClusterRoleIdentity) -> RoleLink {
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

fn web_identity(identity: AwsServiceAccountIdentity) -> WebIdentityLink {
    WebIdentityLink {
        identity: origin(&identity),
        namespace: identity.metadata.namespace.clone().unwrap_or_default(),
        arn: identity.spec.role_arn,
        audiences: identity.spec.audiences,
        expiration_seconds: identity
            .spec
            .expiration_seconds
            .unwrap_or(LONGEST_CHAINED_SECONDS),
    }
}

/// What makes a link another one when its identity is made anew.
fn origin<K: Kind>(identity: &K) -> Identity {
    Identity {
        kind: K::KIND.to_owned(),
        name: identity.metadata().name.clone(),
        uid: identity.metadata().uid.clone(),
    }
}

/// Makes the identity an owner of the cluster, beside those that it has; never the one that controls it, and never one
/// that its deletion waits for.
fn own_by<K: IdentityKind>(cx: &Cx, identity: &K) {
    if !cx.object().is_cluster() {
        return;
    }
    let mut primary = cx.object_mut();
    let owners = &mut primary.metadata.owner_references;
    let other = owners.iter().any(|owner| owner.api_version != K::API_VERSION);
    match cx.config().owner_reference {
        OwnerReferencePolicy::Always => {}
        OwnerReferencePolicy::WithOtherOwner if other => {}
        OwnerReferencePolicy::WithOtherOwner | OwnerReferencePolicy::Never => return,
    }
    let Metadata { name, uid, .. } = identity.metadata();
    // One of an identity that was deleted and made anew is of no use to anybody.
    owners.retain(|owner| (owner.kind.as_str(), &owner.name) != (K::KIND, name) || owner.uid == *uid);
    if owners.iter().all(|owner| owner.uid != *uid) {
        owners.push(OwnerReference {
            api_version: K::API_VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            name: name.clone(),
            uid: uid.clone(),
            controller: Some(false),
            block_owner_deletion: Some(false),
        });
    }
    cx.note("CAPA-05");
}

fn named<K: Kind>(name: &str) -> String {
    format!("{} {name}", K::KIND)
}

fn unauthorized(cluster: &AwsCluster, reason: &'static str, identity: &str) -> Stop {
    let message = match cluster.metadata.namespace.as_deref() {
        Some(namespace) => format!("{identity} does not allow the namespace {namespace}"),
        None => format!("{identity} does not allow what lives in no namespace"),
    };
    Stop::denied(reason, message)
}

/// There is no way to credentials.
fn failed(reason: &'static str, message: String) -> Stop {
    Stop::new(RETRIEVED, ConditionStatus::False, reason, message)
}
