//! The stamps of entries. A driver that cannot find one of them must not take the place of one that can: what was created
//! with it would stay in doubt.

use std::collections::BTreeSet;

use polity_cluster::Cluster;
use polity_core::binding::BindingSpec;
use polity_core::contract::{Failure, ListQuery, Question};
use serde_json::Value;

use crate::bindings::standing;

/// A driver cannot find what the one before it created.
#[derive(Debug, thiserror::Error)]
#[error(
    "spec.driver: it does not find stamp {stamp}, which entries in status.pending have: the driver before it goes on \
     until they are gone"
)]
pub(crate) struct StampInUse {
    stamp: u32,
}

impl StampInUse {
    /// Compares what a driver finds with what the next one finds.
    pub(super) fn check(finds: &[u32], next: &[u32], in_use: &BTreeSet<u32>) -> Result<(), StampInUse> {
        let is_dropped = |stamp: &&u32| finds.contains(stamp) && !next.contains(stamp);
        match in_use.iter().find(is_dropped) {
            None => Ok(()),
            Some(&stamp) => Err(StampInUse { stamp }),
        }
    }
}

/// The stamps in the entries of all objects that are governed with a connection, in these namespaces; none: in all.
pub(super) async fn stamps(
    cluster: &Cluster,
    connection: &str,
    namespaces: Option<&[String]>,
) -> Result<BTreeSet<u32>, Failure> {
    let mut stamps = BTreeSet::new();
    for binding in standing(cluster).await {
        let Ok(spec) = serde_json::from_value::<BindingSpec>(binding["spec"].clone()) else {
            continue;
        };
        if spec.cloud.is_none_or(|cloud| cloud.name != connection) {
            continue;
        }
        let all = ListQuery {
            projection: vec!["status.pending".to_owned()],
            latest: true,
            ..ListQuery::all(spec.governs.kind())
        };
        let queries = match namespaces {
            None => vec![all],
            Some(namespaces) => namespaces.iter().map(|one| in_namespace(&all, one)).collect(),
        };
        for query in queries {
            let objects = cluster.read(&Question::Objects(query)).await?;
            let entries = objects.as_array().into_iter().flatten();
            let entries = entries
                .filter_map(|object| object["status"]["pending"].as_array())
                .flatten();
            stamps.extend(entries.filter_map(stamp));
        }
    }
    Ok(stamps)
}

fn in_namespace(query: &ListQuery, namespace: &str) -> ListQuery {
    ListQuery {
        namespace: Some(namespace.to_owned()),
        ..query.clone()
    }
}

fn stamp(entry: &Value) -> Option<u32> {
    entry["stamp"].as_u64().and_then(|stamp| stamp.try_into().ok())
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
}
