//! Reads and edits `status.pending`: entries for creates that may have been performed.
//!
//! An entry that this host cannot read (an entry of a newer version, or no entry at all) is kept unchanged. Nobody
//! knows which create it announces, so the host creates nothing for this object until the entry is removed.

use serde::Deserialize as _;
use serde_json::Value;

use crate::entry::PendingEntry;
use crate::object::Object;

/// The entries of one object, in their order.
pub(crate) struct Pending {
    entries: Vec<PendingItem>,
    /// The value of `status.pending` if it is not a list.
    other: Option<Value>,
}

struct PendingItem {
    raw: Value,
    /// The entry, or why it cannot be read.
    read: Result<PendingEntry, String>,
}

impl Pending {
    /// Reads the `status.pending` of an object.
    pub(crate) fn of(object: &Object) -> Self {
        Pending::standing(object.at("status.pending"))
    }

    /// Reads a value of `status.pending`.
    pub(crate) fn standing(stands: Option<Value>) -> Self {
        let (entries, other) = match stands {
            Some(Value::Array(entries)) => (entries, None),
            other => (Vec::new(), other),
        };
        let standing = |raw: Value| PendingItem {
            read: PendingEntry::deserialize(&raw).map_err(|e| e.to_string()),
            raw,
        };
        Pending {
            entries: entries.into_iter().map(standing).collect(),
            other,
        }
    }

    /// The entries that this host can read.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &PendingEntry> {
        self.entries
            .iter()
            .filter_map(|standing| standing.read.as_ref().ok())
    }

    /// The first element that this host cannot read, and why; `None` if it can read all.
    pub(crate) fn unreadable(&self) -> Option<String> {
        if self.other.is_some() {
            return Some("status.pending is not a list".into());
        }
        let wrong = self.entries.iter().enumerate().find_map(|(index, standing)| {
            let why = standing.read.as_ref().err()?;
            Some(format!("status.pending[{index}]: {why}"))
        })?;
        Some(wrong)
    }

    /// Whether there is an entry whose outcome is not known.
    pub(crate) fn is_open(&self, is_resolved: impl Fn(&PendingEntry) -> bool) -> bool {
        self.unreadable().is_some() || self.entries().any(|entry| !is_resolved(entry))
    }

    /// The list after a write: the entries as `keep` returns them, and the new ones; `null` if no entry is left.
    /// Unreadable elements always stay.
    pub(crate) fn left(
        &self,
        keep: impl Fn(&PendingEntry) -> Option<PendingEntry>,
        new: &[PendingEntry],
    ) -> Value {
        if let Some(other) = &self.other {
            return other.clone();
        }
        let left = self.entries.iter().filter_map(|standing| match &standing.read {
            Ok(entry) => keep(entry).map(|entry| serde_json::json!(entry)),
            Err(_) => Some(standing.raw.clone()),
        });
        let new = new.iter().map(|entry| serde_json::json!(entry));
        match left.chain(new).collect::<Vec<_>>() {
            none if none.is_empty() => Value::Null,
            some => Value::Array(some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(key: &str) -> Value {
        json!({"operation": "vm.clone", "service": "vm@1", "intent": "m", "key": key, "stamp": 1, "place": ["sim"],
            "principal": "host", "since": 1})
    }

    fn of(object: Value) -> Pending {
        Pending::of(&Object::new(object))
    }

    #[test]
    fn what_cannot_be_read_is_kept_as_it_is_and_named() {
        let mut newer = entry("newer");
        newer["cell"] = json!(2);
        for odd in [newer, json!("x"), json!({"operation": "vm.clone"}), json!(null)] {
            let pending = of(json!({"status": {"pending": [entry("a"), odd]}}));
            let why = pending.unreadable().expect("it cannot be read");
            assert!(why.starts_with("status.pending[1]: "), "{why}");
            assert!(pending.is_open(|entry| entry.key == "a"));
            assert_eq!(pending.left(|_| None, &[]), json!([odd]));
        }
        let pending = of(json!({"status": {"pending": {"a": 1}}}));
        assert_eq!(
            pending.unreadable().as_deref(),
            Some("status.pending is not a list")
        );
        assert_eq!(pending.left(|_| None, &[]), json!({"a": 1}));
    }

    #[test]
    fn entries_go_when_their_outcome_is_known() {
        let pending = of(json!({"status": {"pending": [entry("a"), entry("b")]}}));
        let is_known = |entry: &PendingEntry| entry.key == "a";
        assert!(pending.is_open(is_known));
        let left = pending.left(|entry| Some(entry.clone()).filter(|entry| !is_known(entry)), &[]);
        assert_eq!(left, json!([entry("b")]));
        assert_eq!(pending.left(|_| None, &[]), Value::Null);
        assert!(!of(json!({"status": {}})).is_open(is_known));
    }
}
