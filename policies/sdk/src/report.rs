//! Reports a failed pass on its object: the author of the object cannot see the pass.

use crate::context::PassState;
use crate::contract::{Event, EventType, Failure};
use crate::{ConditionStatus, Conditions, Kind, Time};

/// The condition that says whether the last pass ended without a failure. It exists from the first failure
/// on.
pub const RECONCILED: &str = "Reconciled";
/// The reason of the Event for a failed pass that reported nothing itself.
pub const RECONCILE_FAILED: &str = "ReconcileFailed";
/// The most characters of a condition's message that API servers keep.
const MESSAGE: usize = 32_768;

/// Reports the end of a pass on its object, if the kind has [conditions](Kind::conditions_mut).
pub(crate) fn end_of_pass<T: Kind, C>(pass: &PassState<T, C>, failure: Option<&Failure>) {
    let Some(object) = &pass.object else { return };
    let mut edited = pass.edited.borrow_mut();
    let told = edited.get_or_insert_with(|| object.clone());
    let Some(conditions) = told.conditions_mut() else {
        return;
    };
    if let (true, Some(failure)) = (record(conditions, pass.journal.now, failure), failure) {
        announce(&mut pass.journal.events.borrow_mut(), failure);
    }
}

/// Records how the pass ended. Returns whether that is news. As long as passes fail with the same code
/// nothing changes, whatever their messages say. So a failing object is not written in each pass.
fn record(conditions: &mut Conditions, now: Time, failure: Option<&Failure>) -> bool {
    let Some(failure) = failure else {
        return conditions.heal(now, RECONCILED, "Succeeded");
    };
    let message: String = failure.message.chars().take(MESSAGE).collect();
    let reason = camel_case(failure.code.as_str());
    conditions.announce(now, RECONCILED, ConditionStatus::False, &reason, message)
}

/// A code as the reason of a condition: `permission-denied` becomes `PermissionDenied`.
fn camel_case(code: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    code.split('-').map(capital).collect()
}

/// Adds an Event about the failure, unless the pass reported one itself.
fn announce(events: &mut Vec<Event>, failure: &Failure) {
    if events.iter().all(|event| event.kind != EventType::Warning) {
        events.push(Event {
            kind: EventType::Warning,
            reason: RECONCILE_FAILED.to_owned(),
            message: format!("{}: {}", failure.code.as_str(), failure.message),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    fn passes(conditions: &mut Conditions, ms: u64, failure: Option<&Failure>) -> bool {
        record(conditions, Time::from_unix_ms(ms), failure)
    }

    #[test]
    fn a_row_of_failures_is_written_down_once_and_its_end_heals() {
        let away = |message: &str| Failure::new(Code::Unavailable, message);
        let mut conditions = Conditions::default();
        assert!(!passes(&mut conditions, 1_000, None));
        assert!(
            conditions.is_empty(),
            "an object that never failed has no such condition"
        );

        assert!(passes(&mut conditions, 2_000, Some(&away("request 1"))));
        let first = conditions.clone();
        assert!(!passes(&mut conditions, 3_000, Some(&away("request 2"))));
        assert_eq!(conditions, first);
        let failed = conditions.get(RECONCILED).unwrap();
        assert_eq!(
            (failed.status, failed.reason.as_str(), failed.message.as_str()),
            (ConditionStatus::False, "Unavailable", "request 1")
        );

        let denied = Failure::new(Code::PermissionDenied, "no");
        assert!(
            passes(&mut conditions, 4_000, Some(&denied)),
            "another code is news"
        );
        assert!(passes(&mut conditions, 5_000, None));
        assert!(conditions.is_true(RECONCILED));
        assert!(!passes(&mut conditions, 6_000, None));
    }
}
