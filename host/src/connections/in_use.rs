//! The entries in `status.pending` of all governed objects. A driver that cannot find an entry must not replace a driver
//! that can, and the connection to the cloud of an entry must not be deleted. Otherwise the entry would stay in doubt.

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_cluster::Cluster;
use polity_core::binding::BindingSpec;
use polity_core::contract::{Failure, ListQuery, Question};
use polity_core::object::Object;
use serde_json::Value;

use crate::binding_objects::standing;
use crate::selection::Selection;

/// The next driver cannot find what the current driver created.
#[derive(Debug, thiserror::Error)]
#[error(
    "spec.driver: the driver does not find stamp {stamp}, which entries in status.pending have: the driver before it goes \
     on until these entries are resolved"
)]
pub(crate) struct StampInUse {
    stamp: u32,
}

impl StampInUse {
    /// Checks that the next driver finds every stamp in use that the current driver finds.
    pub(super) fn check(finds: &[u32], next: &[u32], in_use: &BTreeSet<u32>) -> Result<(), StampInUse> {
        let is_dropped = |stamp: &&u32| finds.contains(stamp) && !next.contains(stamp);
        match in_use.iter().find(is_dropped) {
            None => Ok(()),
            Some(&stamp) => Err(StampInUse { stamp }),
        }
    }
}

/// The bindings and namespaces that a host governs.
#[derive(Default)]
pub(super) struct Governed {
    selection: Selection,
}

impl Governed {
    /// The bindings and namespaces of this selection.
    pub(super) fn of(selection: Selection) -> Self {
        Governed { selection }
    }

    /// The namespaces of the host; `None` means all namespaces.
    pub(super) fn namespaces(&self) -> Option<&Arc<[String]>> {
        self.selection.namespaces.as_ref()
    }

    /// The bindings of this host in the cluster, by name.
    ///
    /// # Errors
    /// The bindings cannot be read.
    pub(super) async fn bindings(&self, cluster: &Cluster) -> Result<Vec<(String, BindingSpec)>, Failure> {
        let all = standing(cluster).await?.into_iter().map(Object::new);
        let own = all.filter(|binding| self.selection.takes(binding));
        // No host loads an object whose spec cannot be read, so it needs no connection.
        Ok(own
            .filter_map(|binding| {
                let spec = serde_json::from_str(binding.text_at("spec")?).ok()?;
                Some((binding.name().to_owned(), spec))
            })
            .collect())
    }
}

/// An entry in `status.pending`.
pub(super) struct Entry {
    /// The object that has it, as `Machine team-a/m1`.
    pub(super) object: String,
    stamp: Option<u32>,
    place: String,
}

impl Entry {
    fn of(kind: &str, object: &Value, entry: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str();
        let name = text("name").unwrap_or_default();
        let place = entry["place"].as_array().into_iter().flatten();
        let place: Vec<&str> = place.filter_map(Value::as_str).collect();
        Entry {
            object: match text("namespace") {
                Some(namespace) => format!("{kind} {namespace}/{name}"),
                None => format!("{kind} {name}"),
            },
            stamp: entry["stamp"].as_u64().and_then(|stamp| stamp.try_into().ok()),
            place: place.join("/"),
        }
    }

    /// Whether the entry is in this place of a cloud, or in a place within it.
    pub(super) fn is_in(&self, place: &str) -> bool {
        let rest = self.place.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether a binding names a connection.
pub(super) fn is_named(connection: &str, spec: &BindingSpec) -> bool {
    spec.cloud.as_ref().is_some_and(|cloud| cloud.name == connection)
}

/// The stamps in the entries of all objects whose bindings name a connection.
pub(super) async fn stamps(
    cluster: &Cluster,
    connection: &str,
    governed: &Governed,
) -> Result<BTreeSet<u32>, Failure> {
    let mut bindings = governed.bindings(cluster).await?;
    bindings.retain(|(_, spec)| is_named(connection, spec));
    let entries = entries(cluster, &bindings, governed.namespaces()).await?;
    Ok(entries.iter().filter_map(|entry| entry.stamp).collect())
}

/// The entries of all objects that these bindings govern, in these namespaces; `None` means all namespaces.
///
/// # Errors
/// The objects cannot be read.
pub(super) async fn entries(
    cluster: &Cluster,
    bindings: &[(String, BindingSpec)],
    namespaces: Option<&Arc<[String]>>,
) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    for (_, spec) in bindings {
        let kind = spec.governs.kind();
        let all = ListQuery {
            projection: ["metadata.name", "metadata.namespace", "status.pending"]
                .map(str::to_owned)
                .to_vec(),
            latest: true,
            ..ListQuery::all(kind.clone())
        };
        let queries = match namespaces {
            None => vec![all],
            Some(namespaces) => namespaces.iter().map(|one| in_namespace(&all, one)).collect(),
        };
        for query in queries {
            let objects = cluster.read(&Question::Objects(query)).await?;
            for object in objects.as_array().into_iter().flatten() {
                let entries = object["status"]["pending"].as_array().into_iter().flatten();
                found.extend(entries.map(|entry| Entry::of(&kind.kind, object, entry)));
            }
        }
    }
    Ok(found)
}

fn in_namespace(query: &ListQuery, namespace: &str) -> ListQuery {
    ListQuery {
        namespace: Some(namespace.to_owned()),
        ..query.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_takes_the_place_of_another_if_it_finds_what_that_one_would() {
        let in_use = BTreeSet::from([2, 7]);
        let refused = |finds: &[u32], next: &[u32]| StampInUse::check(finds, next, &in_use).is_err();
        assert!(!refused(&[1, 2], &[2, 3]), "nobody needs 1 any more");
        assert!(refused(&[1, 2], &[1, 3]));
        assert!(!refused(&[1, 2], &[1, 2]), "neither finds 7");
        assert!(!refused(&[1], &[3]));
    }

    #[test]
    fn an_entry_is_in_the_place_of_a_cloud_or_within_it() {
        let entry = serde_json::json!({"stamp": 2, "place": ["aws", "eu-1", "x"]});
        let object = serde_json::json!({"metadata": {"namespace": "a", "name": "m"}});
        let entry = Entry::of("Machine", &object, &entry);
        assert_eq!((entry.object.as_str(), entry.stamp), ("Machine a/m", Some(2)));
        for (place, expected) in [
            ("aws/eu-1", true),
            ("aws/eu-1/x", true),
            ("aws/eu", false),
            ("gcp", false),
        ] {
            assert_eq!(entry.is_in(place), expected, "{place}");
        }
    }
}
