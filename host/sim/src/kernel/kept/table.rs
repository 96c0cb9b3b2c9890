//! A table of records that notes its changes.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Change, RecordKey};

/// A map that also remembers which of its records changed, as soon as it is told to.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V> {
    records: BTreeMap<K, V>,
    /// `None` as long as nothing is stored: a simulation in memory would collect changes for ever.
    changed: Option<BTreeSet<K>>,
}

impl<K: Ord + Clone, V> Table<K, V> {
    fn note(&mut self, key: &K) {
        if let Some(changed) = &mut self.changed
            && !changed.contains(key)
        {
            changed.insert(key.clone());
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.note(&key);
        self.records.insert(key, value)
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.records.remove_entry(key)?;
        self.note(&key);
        Some(value)
    }

    /// A record. It counts as changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.records.contains_key(key) {
            self.note(key);
        }
        self.records.get_mut(key)
    }

    /// A record, created if there is none.
    pub(crate) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.note(&key);
        self.records.entry(key).or_default()
    }

    /// Removes the records for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        let gone = self.records.iter().filter(|(_, value)| !keep(value));
        let gone: Vec<K> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.remove(&key);
        }
    }

    /// Removes the first record if its key matches.
    pub(crate) fn pop_first_if(&mut self, wanted: impl FnOnce(&K) -> bool) -> Option<(K, V)> {
        let first = self.records.keys().next().filter(|key| wanted(key))?.clone();
        let value = self.remove(&first)?;
        Some((first, value))
    }
}

/// A table with records of any type, stored under a name.
pub(crate) trait Note {
    /// Notes changes from now on. At first every record counts as changed.
    fn begin(&mut self);
    fn is_empty(&self) -> bool;
    /// Passes every record on, key and value as JSON.
    fn show(&self, each: &mut dyn FnMut(String, String));
    /// Hands over the changes since the last call.
    fn hand_over(&mut self, table: &'static str, changes: &mut Vec<Change>);
    /// Adds a stored record.
    fn restore(&mut self, key: &str, value: &[u8]) -> serde_json::Result<()>;
}

impl<K, V> Note for Table<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn begin(&mut self) {
        self.changed = Some(self.records.keys().cloned().collect());
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn show(&self, each: &mut dyn FnMut(String, String)) {
        for (key, value) in &self.records {
            each(text(key), text(value));
        }
    }

    fn hand_over(&mut self, table: &'static str, changes: &mut Vec<Change>) {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        changes.extend(changed.into_iter().map(|key| Change {
            value: self.records.get(&key).map(|value| text(value).into_bytes()),
            key: RecordKey {
                table,
                key: text(&key),
            },
        }));
    }

    fn restore(&mut self, key: &str, value: &[u8]) -> serde_json::Result<()> {
        let (key, value) = (serde_json::from_str(key)?, serde_json::from_slice(value)?);
        self.records.insert(key, value);
        Ok(())
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are JSON")
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table {
            records: BTreeMap::new(),
            changed: None,
        }
    }
}

impl<K, V> Deref for Table<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed_over(table: &mut Table<u64, String>) -> Vec<(String, Option<String>)> {
        let mut changes = Vec::new();
        table.hand_over("t", &mut changes);
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        changes
            .into_iter()
            .map(|change| (change.key.key, change.value.map(text)))
            .collect()
    }

    #[test]
    fn each_way_to_change_a_record_is_noted_once_and_none_to_read_it() {
        let mut table: Table<u64, String> = Table::default();
        for key in 1..=6 {
            table.insert(key, "old".into());
        }
        assert!(handed_over(&mut table).is_empty(), "nobody stores it yet");
        table.begin();
        assert_eq!(handed_over(&mut table).len(), 6, "all that was there");

        table.insert(1, "new".into());
        table.remove(&2);
        table.get_mut(&3).unwrap().push('!');
        table.get_or_default(7);
        table.pop_first_if(|key| *key == 1);
        table.retain(|value| value != "old!");
        assert!(table.get_mut(&9).is_none() && table.pop_first_if(|_| false).is_none());
        let of = |key: u64, value: Option<&str>| (key.to_string(), value.map(str::to_owned));
        let wanted = [of(1, None), of(2, None), of(3, None), of(7, Some("\"\""))];
        assert_eq!(handed_over(&mut table), wanted);

        let _ = (table.get(&4), table.values().count());
        assert!(handed_over(&mut table).is_empty());
    }
}
