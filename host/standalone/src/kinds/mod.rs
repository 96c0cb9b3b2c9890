//! The kinds that are served, and how.

mod builtin;
mod crd;
mod events;
mod meta;
mod scale;

use std::{collections::BTreeMap, sync::Arc};

use polity_kube_rules::schema::Schema;
use serde_json::Value;

pub(crate) use crd::{CRD_RESOURCE, admit as admit_crd, kind_of as custom_kind, set_terminating};
pub(crate) use events::core_field as core_event_field;
pub(crate) use meta::source as object_meta_source;
pub(crate) use scale::Scale;

use crate::{
    http::{
        refusal::{Refusal, Subject},
        table::Column,
    },
    store::{Object, Stored},
};

/// A kind of objects, builtin or defined by a CRD.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<Version>,
    /// Versions that are not served. Objects may still be stored in one of them.
    pub(crate) unserved: Vec<Version>,
    /// The resource under which objects are stored: `plural.group`, or only the plural for the core group.
    /// Both kinds of events share one.
    pub(crate) storage: Arc<str>,
    /// The apiVersion of stored objects.
    pub(crate) storage_version: String,
    /// Field selectors allowed beside `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: Vec<String>,
    pub(crate) rules: Rules,
    /// Whether its CRD is being deleted. Then no object of the kind can be created.
    pub(crate) terminating: bool,
}

/// A served version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// The schema of the whole object, metadata included.
    pub(crate) schema: Schema,
    /// The JSON that `schema` was compiled from, for OpenAPI; null for builtin kinds.
    pub(crate) source: Value,
    /// Whether there is a status subresource.
    pub(crate) status: bool,
    /// Where objects have the numbers of the scale subresource, if there is one.
    pub(crate) scale: Option<Scale>,
    /// The columns of a `Table` beside the name.
    pub(crate) columns: Vec<Column>,
}

/// The rules of a kind beyond its schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rules {
    /// No special rules. An update need not name a resourceVersion.
    Plain,
    /// No special rules. An update must name its resourceVersion.
    Versioned,
    /// A new object may have a status.
    Node,
    /// Contains other objects, which are deleted with it.
    Namespace,
    /// Ends gracefully once it runs on a node.
    Pod,
    /// This server keeps its status up to date.
    Budget,
    /// A volume, or a claim to one. A new one is `Pending`.
    Volume,
    /// A new one is not attached. Its spec never changes.
    Attachment,
    /// `stringData` becomes `data`.
    Secret,
    /// Stored as core/v1 events.
    NewEvent,
    /// Defines other kinds.
    Crd,
    /// Defined by a CRD.
    Custom,
}

impl Rules {
    /// Whether `metadata.generation` counts changes of the spec: for custom kinds and a few builtin ones.
    pub(crate) fn counts_generations(self) -> bool {
        matches!(self, Self::Custom | Self::Crd | Self::Pod | Self::Budget)
    }

    /// Whether an update must name the resourceVersion that it is based on.
    pub(crate) fn wants_version(self) -> bool {
        matches!(
            self,
            Self::Custom | Self::Crd | Self::Versioned | Self::Attachment | Self::Budget
        )
    }
}

impl Kind {
    /// A served version by name.
    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// `G/V`, or `V` for core.
    pub(crate) fn api_version(&self, version: &Version) -> String {
        api_version(&self.group, &version.name)
    }

    /// Whether its objects have the subresource `eviction`.
    pub(crate) fn is_evicted(&self) -> bool {
        self.rules == Rules::Pod
    }

    /// What a refusal says about one of its objects.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject {
            group: &self.group,
            kind: &self.plural,
            name,
        }
    }

    /// The same, naming the kind, as `Invalid` does.
    pub(crate) fn invalid_subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject {
            group: &self.group,
            kind: &self.kind,
            name,
        }
    }

    /// A served object in the form in which it is stored.
    pub(crate) fn to_storage(&self, object: &mut Value) {
        if self.rules == Rules::NewEvent {
            events::to_core(object);
        }
        object["apiVersion"] = Value::from(self.storage_version.as_str());
    }

    /// Drops fields that the stored version does not know, and fills in its defaults.
    pub(crate) fn keep(&self, written: &Version, object: &mut Value) {
        if self.rules != Rules::Custom || self.api_version(written) == self.storage_version {
            return;
        }
        if let Some(schema) = self.schema_of(&self.storage_version) {
            schema.read(object);
        }
    }

    /// A stored object in the form that the present schema gives it; `None` if it is stored in that form.
    pub(crate) fn read(&self, stored: &Stored) -> Option<Object> {
        let schema = self.schema_of(stored.at("apiVersion").as_str()?)?;
        let mut object = stored.tree();
        schema.read(&mut object);
        let read = Stored::new(object);
        (read.json() != stored.json()).then_some(read)
    }

    fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        let mut all = self.versions.iter().chain(&self.unserved);
        let version = all.find(|version| self.api_version(version) == api_version)?;
        Some(&version.schema)
    }

    /// A stored object in this version; `None` if it is stored in this version. An object of a custom kind
    /// shows only the fields that the version knows.
    pub(crate) fn in_version(&self, version: &Version, stored: &Stored) -> Option<Value> {
        let wanted = self.api_version(version);
        if stored.at("apiVersion") == wanted.as_str() {
            return None;
        }
        let mut object = stored.tree();
        match self.rules {
            Rules::NewEvent => events::from_core(&mut object),
            Rules::Custom => {
                version.schema.prune(&mut object);
            }
            _ => {}
        }
        object["apiVersion"] = Value::from(wanted);
        Some(object)
    }
}

/// `G/V`, or `V` for core.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// `plural.group`, or the plural alone for core: what names a resource in storage and in CRDs.
pub(crate) fn resource_name(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// All kinds that are served now, by group and plural.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    kinds: BTreeMap<(String, String), Arc<Kind>>,
}

impl Registry {
    /// The builtin kinds.
    pub(crate) fn builtin() -> Self {
        let mut registry = Self {
            kinds: BTreeMap::new(),
        };
        builtin::kinds()
            .into_iter()
            .for_each(|kind| registry.insert(Arc::new(kind)));
        registry
    }

    /// Starts to serve a kind.
    pub(crate) fn insert(&mut self, kind: Arc<Kind>) {
        self.kinds.insert((kind.group.clone(), kind.plural.clone()), kind);
    }

    /// Stops serving a kind.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.remove(&(group.to_owned(), plural.to_owned()));
    }

    /// A kind by its plural; 404 where none is served.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Result<&Arc<Kind>, Refusal> {
        self.kinds
            .get(&(group.to_owned(), plural.to_owned()))
            .ok_or_else(Refusal::no_such_path)
    }

    /// A kind by group and kind, as owner references name it.
    pub(crate) fn named(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.of_group(group).find(|served| served.kind == kind)
    }

    /// Every kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    /// The kinds of a group.
    pub(crate) fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<Kind>> {
        let group = group.to_owned();
        self.kinds
            .iter()
            .filter(move |((g, _), _)| *g == group)
            .map(|(_, kind)| kind)
    }

    /// Every group with its versions, sorted: the order in which discovery shows them.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for kind in self.kinds.values() {
            let versions = groups.entry(&kind.group).or_default();
            for version in &kind.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|name| std::cmp::Reverse(crd::priority(name)));
        }
        groups
    }
}
