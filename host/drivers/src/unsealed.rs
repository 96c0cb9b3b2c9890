//! The sealed values that were sent lately. If a server repeats one in the response of a later operation, in any spelling and within
//! any text, the host hides it from the driver.
//!
//! A value that a tenant has sealed is hidden only in that tenant's operations. Otherwise a tenant could seal an id or the
//! word `running`, and so hide it from all other tenants.
//!
//! # Caveats
//!
//! No filter can hide what a server has transformed: encrypted, compressed, cut within a line, or returned in pieces. So sealed
//! values go only to fields of which nothing is kept (`places.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use polity_clouds::Redactor;

/// The most spellings of a tenant. The older half is dropped first.
const MOST_OF_TENANT: usize = 1 << 16;
/// The most spellings of a connection, some 40 MB. Beyond that, the tenant with the most loses its older half.
const MOST: usize = 1 << 20;

/// The values of a connection.
#[derive(Default)]
pub(crate) struct Unsealed(Mutex<BTreeMap<String, Arc<[Redactor; 2]>>>);

impl Unsealed {
    /// Notes the values that are sent for a tenant.
    pub(crate) fn note(&self, tenant: &str, values: &Redactor) {
        if values.is_empty() {
            return;
        }
        let count = |known: &[Redactor; 2]| known.iter().map(Redactor::spellings).sum::<usize>();
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::make_mut(tenants.entry(tenant.to_owned()).or_default());
        if known[0].spellings() + values.spellings() > MOST_OF_TENANT / 2 {
            known.swap(0, 1);
            known[0] = Redactor::default();
        }
        known[0].join(values);
        while tenants.values().map(|known| count(known)).sum::<usize>() > MOST {
            let most = tenants.iter_mut().max_by_key(|(_, known)| count(known));
            let Some((_, most)) = most else { return };
            let [new, old] = Arc::make_mut(most);
            if old.is_empty() {
                *new = Redactor::default();
            } else {
                *old = Redactor::default();
            }
        }
        tenants.retain(|_, known| count(known) > 0);
    }

    /// What scrubs the values of a tenant.
    pub(crate) fn of(&self, tenant: &str) -> Arc<[Redactor; 2]> {
        let tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(tenant).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(unsealed: &Unsealed, tenant: &str, text: &str) -> String {
        let known = unsealed.of(tenant);
        known
            .iter()
            .fold(text.to_owned(), |text, known| known.scrub(&text))
    }

    fn of(value: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.learn(value);
        redactor
    }

    #[test]
    fn what_was_unsealed_of_late_is_hidden_within_any_text_of_its_tenant() {
        let unsealed = Unsealed::default();
        let text = "label=s3cret-value;s3cret; czNjcmV0LXZhbHVl yes";
        assert_eq!(scrubbed(&unsealed, "t", text), text, "nothing is known yet");
        unsealed.note("t", &of("s3cret-value"));
        assert_eq!(
            scrubbed(&unsealed, "t", text),
            "label=[redacted];s3cret; [redacted] yes"
        );
        assert_eq!(scrubbed(&unsealed, "another", text), text, "that is theirs");
    }

    #[test]
    fn only_so_many_are_kept_and_the_greedy_forget_first() {
        let unsealed = Unsealed::default();
        unsealed.note("modest", &of("the only value of it"));
        for number in 0..20_000 {
            unsealed.note("greedy", &of(&format!("a value with the number {number}")));
        }
        let is_known = |tenant, text: &str| scrubbed(&unsealed, tenant, text) != text;
        assert!(!is_known("greedy", "a value with the number 0"));
        assert!(is_known("greedy", "a value with the number 19999"));
        assert!(is_known("greedy", "a value with the number 18000"));
        let all: usize = unsealed.of("greedy").iter().map(Redactor::spellings).sum();
        assert!(all <= MOST_OF_TENANT, "{all}");
        for tenant in 0..40 {
            let value: Vec<String> = (0..3_000)
                .map(|n| format!("a long line {n} of tenant {tenant}"))
                .collect();
            unsealed.note(&tenant.to_string(), &of(&value.join("\n")));
        }
        assert!(is_known("modest", "the only value of it"));
    }
}
