//! Keyed digests of the texts that were sent for sealed values lately. If a server repeats such a text in the response of a
//! later operation, the host hides it from the driver.
//!
//! A text that a tenant has sealed is hidden only in that tenant's operations. Otherwise a tenant could seal an id or the
//! word `running`, and so hide it from all other tenants.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use polity_clouds::REDACTED;
use serde_json::Value;

/// The most digests that are kept. The oldest digests are dropped first.
const MOST: usize = 4_096;
/// The shortest text that is hidden. A shorter text can be in a response by chance.
const SHORTEST: usize = 4;

/// The digests of a connection. Their key exists only in this process.
#[derive(Default)]
pub(crate) struct Unsealed {
    key: RandomState,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    digests: HashSet<u64>,
    /// In the order in which they came.
    order: VecDeque<u64>,
}

impl Unsealed {
    /// Notes a text that is sent for a sealed value of a tenant.
    pub(crate) fn note(&self, tenant: &str, text: &str) {
        let text = text.trim();
        if text.len() < SHORTEST {
            return;
        }
        let digest = self.key.hash_one((tenant, text));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.digests.insert(digest) {
            return;
        }
        known.order.push_back(digest);
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.digests.remove(&oldest);
        }
    }

    /// A value in which the texts that were noted for a tenant are hidden.
    pub(crate) fn hidden(&self, tenant: &str, value: Value) -> Value {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.digests.is_empty() {
            true => value,
            false => self.without(tenant, value, &known.digests),
        }
    }

    /// A text, hidden if it was noted for a tenant.
    pub(crate) fn hidden_text(&self, tenant: &str, text: String) -> String {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.text(tenant, text, &known.digests)
    }

    fn without(&self, tenant: &str, value: Value, known: &HashSet<u64>) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(tenant, text, known)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.without(tenant, item, known))
                .collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, field)| (name, self.without(tenant, field, known)))
                .collect(),
            other => other,
        }
    }

    fn text(&self, tenant: &str, text: String, known: &HashSet<u64>) -> String {
        let trimmed = text.trim();
        match trimmed.len() >= SHORTEST && known.contains(&self.key.hash_one((tenant, trimmed))) {
            true => REDACTED.to_owned(),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_unsealed_of_late_is_hidden_wherever_it_stands_by_itself() {
        let unsealed = Unsealed::default();
        let seen = json!({"a": ["#cloud-config"], "b": {"c": " s3cret\n", "d": "s3cret-looking", "e": 7}});
        assert_eq!(unsealed.hidden("t", seen.clone()), seen, "nothing is known yet");
        unsealed.note("t", "#cloud-config\n");
        unsealed.note("t", "s3cret");
        unsealed.note("t", "yes");
        let hidden = json!({"a": [REDACTED], "b": {"c": REDACTED, "d": "s3cret-looking", "e": 7}});
        assert_eq!(unsealed.hidden("t", seen), hidden);
        assert_eq!(unsealed.hidden_text("t", "s3cret".to_owned()), REDACTED);
        assert_eq!(
            unsealed.hidden("t", json!("yes")),
            json!("yes"),
            "that is in responses by chance"
        );
        assert_eq!(
            unsealed.hidden("another", json!("s3cret")),
            json!("s3cret"),
            "that is theirs"
        );
    }

    #[test]
    fn only_so_many_are_kept() {
        let unsealed = Unsealed::default();
        (0..=MOST).for_each(|number| unsealed.note("t", &format!("value {number}")));
        assert_eq!(unsealed.hidden("t", json!("value 0")), json!("value 0"));
        assert_eq!(unsealed.hidden("t", json!("value 1")), json!(REDACTED));
        assert_eq!(unsealed.known.lock().unwrap().digests.len(), MOST);
    }
}
