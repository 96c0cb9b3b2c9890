//! What a request is about: a kind in a version, and an object of it.

use std::sync::Arc;

use crate::{
    http::{
        path::Location,
        refusal::{Refusal, Subject},
    },
    kinds::{Kind, Registry, Rules, Version},
    metadata::NameRule,
    store::Key,
};

/// A collection, an object, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Arc<Kind>,
    version: usize,
    /// `None` for cluster-scoped kinds, and for a collection of all namespaces.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) part: Part,
}

/// The part of an object that is meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Whole,
    /// Its status alone.
    Status,
    /// The number of its replicas.
    Scale,
    /// Its eviction, which can only be created: of pods.
    Eviction,
}

/// Subresources of builtin kinds in real API servers that this server refuses by name.
const ABSENT: [(&str, &str); 10] = [
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "attach"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("pods", "binding"),
    ("pods", "ephemeralcontainers"),
    ("pods", "resize"),
    ("nodes", "proxy"),
    ("namespaces", "finalize"),
];

impl Target {
    /// Finds the kind; 404 if it is not served, or not with this scope.
    pub(crate) fn find(registry: &Registry, location: Location) -> Result<Self, Refusal> {
        let kind = registry.find(&location.group, &location.plural)?.clone();
        let version = kind
            .versions
            .iter()
            .position(|version| version.name == location.version);
        let version = version.ok_or_else(Refusal::no_such_path)?;
        let scope_fits = match (&location.namespace, &location.name) {
            (Some(_), _) => kind.namespaced,
            (None, Some(_)) => !kind.namespaced,
            (None, None) => true,
        };
        if !scope_fits {
            return Err(Refusal::no_such_path());
        }
        let part = match location.subresource.as_deref() {
            None => Part::Whole,
            Some("status") if kind.versions[version].status => Part::Status,
            Some("scale") if kind.versions[version].scale.is_some() => Part::Scale,
            Some("eviction") if kind.is_evicted() => Part::Eviction,
            Some(sub) if ABSENT.contains(&(&kind.plural, sub)) => {
                return Err(Refusal::not_implemented(&format!(
                    "subresource {}/{sub}",
                    kind.plural
                )));
            }
            Some(_) => return Err(Refusal::no_such_path()),
        };
        Ok(Self {
            kind,
            version,
            namespace: location.namespace.map(Arc::from),
            name: location.name.map(Arc::from),
            part,
        })
    }

    /// The version in which the request is written.
    pub(crate) fn version(&self) -> &Version {
        &self.kind.versions[self.version]
    }

    /// The apiVersion of objects in the request and its answer.
    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(self.version())
    }

    /// Where an object of this name is stored.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key {
            resource: self.kind.storage.clone(),
            namespace: self.namespace.clone().unwrap_or_else(|| "".into()),
            name: name.into(),
        }
    }

    /// The object that the request names; 405 for a collection.
    pub(crate) fn named(&self) -> Result<(Key, &str), Refusal> {
        let name = self.name.as_deref().ok_or_else(|| self.verb_refused())?;
        Ok((self.key(name), name))
    }

    /// The refusal of a verb that this path does not support.
    pub(crate) fn verb_refused(&self) -> Refusal {
        Refusal::method_not_allowed("the server does not allow this method on the requested resource")
    }

    /// Refuses a request that needs a namespace if its path has none. A real API server has no such path for
    /// a custom kind, and no such verb for a builtin one.
    pub(crate) fn check_namespace(&self) -> Result<(), Refusal> {
        if !self.kind.namespaced || self.namespace.is_some() {
            return Ok(());
        }
        Err(match self.kind.rules {
            Rules::Custom => Refusal::no_such_path(),
            _ => self.verb_refused(),
        })
    }

    /// The object, as refusals name it.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        self.kind.subject(name)
    }

    /// The rule for names of this kind.
    pub(crate) fn name_rule(&self) -> NameRule {
        if self.kind.rules == Rules::Namespace {
            NameRule::Label
        } else {
            NameRule::Subdomain
        }
    }
}
