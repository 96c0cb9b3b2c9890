//! Builds the credential plan from the identity of a cluster (CAPA-02 to CAPA-07, CAPA-11 to CAPA-13, P1 to P9).

use polity_sdk::cloud::session::{Link, Plan};
use polity_sdk::prelude::*;

use crate::allowed::{self, Answer};
use crate::lookup::{self, named};
use crate::object::{
    AwsCluster, AwsClusterControllerIdentity, AwsClusterRoleIdentity, AwsClusterStaticIdentity,
    AwsServiceAccountIdentity, DEFAULT, IdentityKind, IdentityRef,
};
use crate::stop::Stop;
use crate::{Cx, controller, link, owner};

/// The plan of a cluster without an identityRef: the credentials of the controller, which is recorded as its
/// identity.
pub(crate) async fn default(cx: &Cx, cluster: &AwsCluster) -> Result<Plan, Stop> {
    cx.note("CAPA-11");
    if cx.object().is_cluster() {
        cx.object_mut().spec.identity_ref = Some(IdentityRef {
            kind: AwsClusterControllerIdentity::KIND.to_owned(),
            name: DEFAULT.to_owned(),
            namespace: None,
        });
    }
    let identity = controller::fetch(cx, DEFAULT).await?;
    let namespace = cluster.metadata.namespace.as_deref();
    let name = named::<AwsClusterControllerIdentity>(DEFAULT);
    let answer = allowed::namespace(cx, identity.allowed(), namespace, &name).await?;
    if let Some(why) = denial(cluster, &name, &answer) {
        cx.note("CAPA-13");
        return Err(Stop::denied("PrincipalUsageUnauthorized", why));
    }
    cx.note("CAPA-12");
    Ok(link::plan(cluster, Vec::new()))
}

/// The plan of a cluster with an identityRef: its identity, and the chain of identities behind it.
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
    cx.note("CAPA-07");
    Ok(link::plan(cluster, walk.links))
}

/// The chain from the identity of a cluster to its source.
struct Walk<'a> {
    cx: &'a Cx,
    cluster: &'a AwsCluster,
    /// The identities so far; the first is the cluster's own.
    seen: Vec<IdentityRef>,
    /// The links of these identities in the plan, in the same order.
    links: Vec<Link>,
}

impl Walk<'_> {
    /// Adds one identity. Returns the identity from which it is assumed.
    async fn link(&mut self, reference: &IdentityRef) -> Result<Option<IdentityRef>, Stop> {
        let (cx, config) = (self.cx, self.cx.config());
        let same = |seen: &IdentityRef| (&seen.kind, &seen.name) == (&reference.kind, &reference.name);
        if self.seen.iter().any(same) || self.seen.len() >= config.max_chain_length {
            cx.note("CAPA-P7");
            let message = format!(
                "the chain of identities is a circle or longer than maxChainLength: {}",
                self.trail(reference)
            );
            return Err(Stop::failed("IdentityChainCycle", message));
        }
        self.seen.push(reference.clone());
        match reference.kind.as_str() {
            AwsClusterControllerIdentity::KIND => {
                self.admit(reference, controller::fetch(cx, &reference.name))
                    .await?;
                cx.note("CAPA-P1");
                Ok(None)
            }
            AwsClusterStaticIdentity::KIND => {
                let fetched = lookup::identity::<AwsClusterStaticIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                self.links.push(Link::Secret(link::secret(cx, &found).await?));
                cx.note("CAPA-P2");
                Ok(None)
            }
            AwsClusterRoleIdentity::KIND => {
                let fetched = lookup::identity::<AwsClusterRoleIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                let source = found.spec.source_identity_ref.clone();
                cx.note(if source.is_some() { "CAPA-P3" } else { "CAPA-P4" });
                self.links.push(Link::Role(link::role(found)));
                Ok(source)
            }
            AwsServiceAccountIdentity::KIND if config.service_account_identities => {
                let fetched = lookup::identity::<AwsServiceAccountIdentity>(cx, &reference.name);
                let found = self.admit(reference, fetched).await?;
                self.links.push(Link::WebIdentity(link::web_identity(found)));
                cx.note("CAPA-P9");
                Ok(None)
            }
            unknown => {
                let message = format!("{unknown:.60} is not a kind of identity");
                if self.is_outermost() {
                    cx.note("CAPA-04");
                    cx.note("CAPA-06");
                }
                cx.note("CAPA-P5");
                Err(Stop::failed("UnknownIdentityKind", message))
            }
        }
    }

    fn is_outermost(&self) -> bool {
        self.seen.len() == 1
    }

    /// Fetches an identity that the cluster's namespace may use. It is read from the cluster's own namespace, or is
    /// cluster-scoped, whatever namespace the reference names.
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
                "{} is named in another namespace than the cluster's",
                named::<K>(&reference.name)
            );
            return Err(lookup::lacking(cx, "IdentityInOtherNamespace", message));
        }
        let identity = fetched.await?;
        if self.is_outermost() {
            owner::add(cx, &identity);
        }
        let name = named::<K>(&reference.name);
        let answer = allowed::namespace(cx, identity.allowed(), own, &name).await?;
        let denial = denial(self.cluster, &name, &answer);
        let (checked, reason) = match (self.is_outermost(), &denial) {
            (true, None) => (&["CAPA-07a"][..], ""),
            (true, Some(_)) => (&["CAPA-07b"][..], "PrincipalUsageUnauthorized"),
            (false, None) => (&["CAPA-P8"][..], ""),
            (false, Some(_)) => (&["CAPA-P8", "CAPA-P6"][..], "SourcePrincipalUsageUnauthorized"),
        };
        checked.iter().for_each(|id| cx.note(*id));
        denial.map_or(Ok(identity), |why| Err(Stop::denied(reason, why)))
    }

    /// The identities so far and the next one.
    fn trail(&self, next: &IdentityRef) -> String {
        let names = self.seen.iter().chain([next]).map(|seen| seen.name.as_str());
        names.collect::<Vec<_>>().join(" from ")
    }
}

/// Why the cluster may not use an identity; `None` if it may.
fn denial(cluster: &AwsCluster, identity: &str, answer: &Answer) -> Option<String> {
    let whom = match cluster.metadata.namespace.as_deref() {
        Some(namespace) => format!("the namespace {namespace}"),
        None => "cluster-scoped objects".to_owned(),
    };
    match answer {
        Answer::Allowed => None,
        Answer::Denied => Some(format!("{identity} does not allow {whom}")),
        Answer::Unknown(field) => Some(format!(
            "{identity} does not allow {whom}: its allowedNamespaces have the unknown field {field:.60?}"
        )),
    }
}
