//! When the session of a connection's own credentials is renewed.

use polity_core::controller::lease::OPERATION_AT_MOST;
use polity_core::time::millis;

/// How long before its end a session is renewed, in milliseconds. A metadata service has new keys by then ("Retrieve security
/// credentials from instance metadata": at least five minutes before the old ones expire).
const BEFORE_ITS_END: u64 = 5 * 60 * 1_000;

/// The time of one session. All times are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    expires: Option<u64>,
    /// From then on a new session is opened in its place.
    due: u64,
}

impl Renewal {
    /// Of a session that begins now. What ends soon, because a source hands out the same keys until it has new ones, is renewed
    /// after half of the time that is left.
    pub(crate) fn of(expires: Option<u64>, now: u64) -> Self {
        let left = expires.map_or(u64::MAX, |expires| expires.saturating_sub(now));
        let due = now.saturating_add(left.saturating_sub(BEFORE_ITS_END).max(left / 2));
        Renewal { expires, due }
    }

    /// Of the same session, of which a renewal has just failed.
    pub(crate) fn put_off(self, now: u64) -> Self {
        Renewal::of(self.expires, now)
    }

    /// Whether it is time for a new session.
    pub(crate) fn is_due(self, now: u64) -> bool {
        self.expires.is_some() && now >= self.due
    }

    /// Whether an operation that begins now can end in the session.
    pub(crate) fn lasts(self, now: u64) -> bool {
        self.expires
            .is_none_or(|expires| expires > now.saturating_add(millis(OPERATION_AT_MOST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    #[test]
    fn a_session_is_renewed_five_minutes_before_its_end_and_used_until_that_has_worked() {
        let hour = Renewal::of(Some(60 * MINUTE), 0);
        assert!(!hour.is_due(55 * MINUTE - 1));
        assert!(hour.is_due(55 * MINUTE) && hour.lasts(55 * MINUTE));
        let put_off = hour.put_off(55 * MINUTE);
        assert!(!put_off.is_due(57 * MINUTE) && put_off.is_due(57 * MINUTE + MINUTE / 2));
        assert!(hour.lasts(60 * MINUTE - millis(OPERATION_AT_MOST) - 1));
        assert!(!hour.lasts(60 * MINUTE - millis(OPERATION_AT_MOST)));
        let endless = Renewal::of(None, 7);
        assert!(endless.lasts(u64::MAX) && !endless.is_due(u64::MAX));
    }

    #[test]
    fn keys_that_a_source_hands_out_again_are_not_asked_for_with_each_operation() {
        let (mut now, mut logins) = (0, 0);
        while Renewal::of(Some(4 * MINUTE), now).lasts(now) {
            logins += 1;
            now = Renewal::of(Some(4 * MINUTE), now).due;
        }
        assert!(logins < 8, "{logins}");
    }
}
