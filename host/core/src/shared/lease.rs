//! The lease: when to take, renew and give it up, and until when a write may start.
//!
//! A host trusts only its own clock. It holds the lease until `duration` after it *sent* the acknowledged write. It
//! takes a foreign lease only after it saw the same version for `duration`. Another host can see the write only after
//! it was sent, so that host's count ends later than the holder's. So two hosts never hold the lease at once, however
//! far apart their clocks are. One clock may be a little slower than the other: the other host waits a thousandth
//! longer.
//!
//! # How long it takes until another host acts
//!
//! A holder dies, and another host waits for the lease. The last write of the holder may arrive one call after its
//! death. A read that is under way then may miss it, and the next one begins [`RENEW_EVERY`] after its answer. So the
//! other host sees the write at most [`RENEW_EVERY`] and two calls after it arrived. It waits for [`DURATION`] and
//! writes, which is one more call. These are 15 s and four calls: 16 s, if the API server answers within a fifth of a
//! second. After a host that gives the lease up, another one takes it with its next read.

use std::time::Duration;

use crate::call::{LeaseRead, LeaseWrite};
use crate::contract::Failure;
use crate::time::{Boot, Now, millis};

/// How long a holder may go without renewal. Even if each call about the lease takes its longest, a renewal is answered
/// 6 s after the one before was sent. The 7 s that are left cover each call that changes something (5 s, or up to 7 s of a
/// connection that says so), so that work need not pause for renewals.
pub const DURATION: Duration = Duration::from_secs(13);
/// The interval between the answer to a renewal and the next renewal, and between reads of a foreign lease. It is that
/// of the controllers of Kubernetes (`RetryPeriod` of client-go's leader election).
pub const RENEW_EVERY: Duration = Duration::from_secs(2);
/// The longest time that an operation of a cloud may take: what a lease leaves while a renewal is answered late (see
/// [`DURATION`]). An operation that takes longer would have to wait for a renewal before it begins.
pub const OPERATION_AT_MOST: Duration =
    Duration::from_secs(DURATION.as_secs() - RENEW_EVERY.as_secs() - 2 * CALL_LONGEST.as_secs());
/// The interval between tries after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The longest time that a call about the lease may take. Later it counts as failed. Three such failures in a row, each
/// with its pause, leave time for a renewal.
pub const CALL_LONGEST: Duration = Duration::from_secs(2);
/// The shortest time that a foreign lease is respected, whatever duration it names: its holder has the time between two
/// reads to show that it lives.
const SHORTEST: Duration = RENEW_EVERY;
/// By which part of its length a clock may be slower than another. Linux corrects the rate of a clock by at most 500
/// millionths (`MAXFREQ` of `include/linux/timex.h`), so the rates of two hosts differ by a thousandth.
const DRIFT: u32 = 1_000;

/// The next action for the lease.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Write the lease; `None` means read it.
    Call(Option<LeaseWrite>),
    /// Do nothing before this time.
    Wait(Boot),
}

/// Why a host does not hold the lease, or will not hold it for long.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseProblem {
    /// This other host holds the lease.
    HeldBy(String),
    /// The last read or write of the lease failed.
    Failing(Failure),
}

impl std::fmt::Display for LeaseProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LeaseProblem::HeldBy(holder) => write!(f, "{holder} holds it, and this host waits for it"),
            LeaseProblem::Failing(failure) => write!(f, "it cannot be read or renewed: {failure}"),
        }
    }
}

/// The lease as this host sees it.
#[derive(Debug, Default)]
pub struct Lease {
    identity: String,
    seen: Option<Observation>,
    expires: Option<Boot>,
    sent: Option<Boot>,
    next: Boot,
    /// The last call failed or was cut, so the stored version may be outdated: read the lease before the next write.
    look: bool,
    giving_up: bool,
    failing: Option<Failure>,
}

#[derive(Debug)]
struct Observation {
    read: LeaseRead,
    /// When this version was seen first.
    since: Boot,
}

impl Observation {
    /// When another host may take this lease, if its holder does not renew it.
    fn expires(&self) -> Boot {
        // Its holder counts on the duration that it wrote. That may be another one than this host would write.
        let duration = self.read.duration.max(SHORTEST);
        self.since + duration + duration / DRIFT
    }
}

impl Lease {
    /// The lease as a host of this identity sees it. The identity must differ between processes.
    pub fn new(identity: String) -> Self {
        Lease {
            identity,
            look: true,
            ..Lease::default()
        }
    }

    /// The lease of a host that is alone: it is held without a call until it is given up.
    pub fn alone() -> Self {
        Lease {
            expires: Some(Boot::MAX),
            next: Boot::MAX,
            ..Lease::new(String::new())
        }
    }

    /// Whether this host holds the lease now.
    pub fn is_held(&self, now: Now) -> bool {
        self.expires.is_some_and(|expires| now.boot < expires)
    }

    /// Until when a change may begin that takes at most `longest`: it ends while the lease is held, and half of this time is
    /// left for its answer. `None` if the lease does not cover a change that begins now. A host that is alone loses the
    /// lease to nobody.
    pub fn begin_by(&self, now: Now, longest: Duration) -> Option<Boot> {
        let expires = self.expires?;
        if expires == Boot::MAX {
            return Some(expires);
        }
        let last = Boot(expires.0.saturating_sub(millis(longest)));
        (now.boot < last).then(|| last.min(now.boot + longest / 2))
    }

    /// When the lease ends unless it is renewed; `None` if this host does not hold it.
    pub fn expires(&self) -> Option<Boot> {
        self.expires
    }

    /// Why this host does not hold the lease, or may soon lose it.
    pub fn problem(&self) -> Option<LeaseProblem> {
        let failing = self.failing.clone().map(LeaseProblem::Failing);
        failing.or_else(|| {
            let holder = &self.seen.as_ref()?.read.holder;
            let foreign = self.expires.is_none() && !holder.is_empty() && *holder != self.identity;
            foreign.then(|| LeaseProblem::HeldBy(holder.clone()))
        })
    }

    /// The time at which [`Lease::poll`] must be called again.
    pub fn deadline(&self) -> Boot {
        let wanted = self.sent.map_or(self.next, |sent| sent + CALL_LONGEST);
        self.expires.map_or(wanted, |expires| expires.min(wanted))
    }

    /// Gives the lease up as soon as possible and never takes it again.
    pub fn give_up(&mut self) {
        if self.giving_up {
            return;
        }
        self.giving_up = true;
        // Nobody else waits for the lease of a host that is alone.
        if self.expires == Some(Boot::MAX) {
            self.expires = None;
        } else {
            self.next = Boot::default();
        }
    }

    /// Whether the lease is given up: it is not held, and no call about it is in flight.
    pub fn is_given_up(&self) -> bool {
        self.giving_up && self.expires.is_none() && self.sent.is_none()
    }

    /// Decides the next action and marks a call as sent. The caller must make that call.
    pub fn poll(&mut self, now: Now) -> LeaseAction {
        if self.expires.is_some_and(|expires| now.boot >= expires) {
            self.expires = None;
        }
        match self.sent {
            Some(sent) if now.boot < sent + CALL_LONGEST => return LeaseAction::Wait(sent + CALL_LONGEST),
            Some(_) => (self.sent, self.look) = (None, true),
            None => {}
        }
        if now.boot < self.next {
            return LeaseAction::Wait(self.next);
        }
        let action = self.decide(now);
        match &action {
            LeaseAction::Call(_) => self.sent = Some(now.boot),
            LeaseAction::Wait(until) => self.next = *until,
        }
        action
    }

    fn decide(&self, now: Now) -> LeaseAction {
        let Some(seen) = self.seen.as_ref().filter(|_| !self.look) else {
            return LeaseAction::Call(None);
        };
        let ours = seen.read.holder == self.identity;
        if self.giving_up {
            // A lease that has run out needs no write. And the tries end with it, so that a host whose API server does
            // not answer can stop.
            return if ours && self.expires.is_some() {
                LeaseAction::Call(Some(self.write(&seen.read, now, "")))
            } else {
                LeaseAction::Wait(Boot::MAX)
            };
        }
        // The write names the version that was read. If its holder has renewed the lease since then, the write fails.
        if ours || seen.read.holder.is_empty() || now.boot >= seen.expires() {
            LeaseAction::Call(Some(self.write(&seen.read, now, &self.identity)))
        } else {
            LeaseAction::Call(None)
        }
    }

    fn write(&self, read: &LeaseRead, now: Now, holder: &str) -> LeaseWrite {
        LeaseWrite {
            holder: holder.to_owned(),
            duration: DURATION,
            version: Some(read.version.clone()).filter(|v| !v.is_empty()),
            transitions: read.transitions + u64::from(read.holder != holder && !holder.is_empty()),
            now: now.unix,
        }
    }

    /// Handles the reply to a read or write of the lease. `wrote` says that the reply is to a write.
    pub fn answered(&mut self, now: Now, wrote: bool, read: Result<Option<LeaseRead>, Failure>) {
        let sent = self.sent.take();
        // A write that failed may have been performed all the same. The next write needs the version that it made.
        self.look = read.is_err();
        let read = match read {
            Ok(read) => read,
            Err(failure) => {
                self.failing = Some(failure);
                self.next = now.boot + RETRY_EVERY;
                return;
            }
        };
        self.failing = None;
        self.next = now.boot + RENEW_EVERY;
        let read = read.unwrap_or(LeaseRead {
            holder: String::new(),
            duration: Duration::ZERO,
            version: String::new(),
            transitions: 0,
        });
        let ours = read.holder == self.identity;
        // A read that shows the lease as ours does not say when it was written, so it prolongs nothing.
        if wrote && ours {
            self.expires = sent.map(|sent| sent + DURATION);
        } else if !ours {
            self.expires = None;
        }
        // An equal version means that the holder has not renewed the lease since it was seen first. If each read
        // counted anew, the lease of a dead holder would never be taken.
        let since = match &self.seen {
            Some(seen) if seen.read.version == read.version => seen.since,
            _ => now.boot,
        };
        let is_free = read.holder.is_empty();
        let seen = Observation { read, since };
        if !wrote && (ours || is_free) {
            // This read came before a write: after a failure, or because the lease was foreign until now. After a write
            // nothing is due: it has renewed the lease, or given it up.
            self.next = now.boot;
        } else if !ours && !is_free {
            // It may be taken before the next read is due.
            self.next = self.next.min(seen.expires());
        }
        self.seen = Some(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_alone_holds_the_lease_without_a_call_however_fast_time_goes() {
        let mut lease = Lease::alone();
        let year = Duration::from_hours(24 * 365);
        let far = Now::default() + year;
        assert_eq!(lease.poll(far), LeaseAction::Wait(Boot::MAX));
        assert!(lease.is_held(far));
        assert_eq!(lease.begin_by(far, year), Some(Boot::MAX));
        assert_eq!(lease.deadline(), Boot::MAX);
        lease.give_up();
        assert_eq!(lease.poll(far), LeaseAction::Wait(Boot::MAX));
        assert!(lease.is_given_up() && !lease.is_held(far));
    }

    use crate::contract::Code;
    use crate::time::Unix;

    #[test]
    fn what_stands_in_the_way_of_holding_it_can_be_told() {
        let mut lease = Lease::new("me".into());
        assert_eq!(lease.problem(), None, "nothing is known yet");
        lease.poll(at(0));
        lease.answered(at(0), false, Ok(Some(foreign("1"))));
        assert_eq!(lease.problem(), Some(LeaseProblem::HeldBy("other".into())));
        let forbidden = Failure::new(Code::PermissionDenied, "leases is forbidden");
        lease.answered(at(0), false, Err(forbidden.clone()));
        assert_eq!(lease.problem(), Some(LeaseProblem::Failing(forbidden)));
        let free = LeaseRead {
            holder: String::new(),
            ..foreign("2")
        };
        lease.answered(at(1), false, Ok(Some(free)));
        assert_eq!(lease.problem(), None);
    }

    fn unreachable() -> Failure {
        Failure::new(Code::Unavailable, "no answer")
    }

    fn at(boot: u64) -> Now {
        Now {
            boot: Boot(boot),
            unix: Unix(boot),
        }
    }

    fn foreign(version: &str) -> LeaseRead {
        LeaseRead {
            holder: "other".into(),
            duration: DURATION,
            version: version.into(),
            transitions: 0,
        }
    }

    #[test]
    fn an_absent_lease_is_created_and_held_from_when_the_write_was_sent() {
        let mut lease = Lease::new("me".into());
        assert_eq!(lease.poll(at(0)), LeaseAction::Call(None));
        lease.answered(at(5), false, Ok(None));
        let LeaseAction::Call(Some(write)) = lease.poll(at(10)) else {
            panic!("no write")
        };
        assert_eq!((write.holder.as_str(), write.version), ("me", None));
        lease.answered(
            at(400),
            true,
            Ok(Some(LeaseRead {
                holder: "me".into(),
                duration: DURATION,
                version: "1".into(),
                transitions: 1,
            })),
        );
        let end = Boot(10) + DURATION;
        assert_eq!(lease.expires(), Some(end));
        let last = end.0 - millis(CALL_LONGEST);
        let begin_by = |now| lease.begin_by(at(now), CALL_LONGEST);
        let half = millis(CALL_LONGEST) / 2;
        assert_eq!(begin_by(last), None);
        assert_eq!(begin_by(last - 1), Some(Boot(last)), "it ends with the lease");
        assert_eq!(
            begin_by(last - half - 1),
            Some(Boot(last - 1)),
            "half of it is for the answer"
        );
    }

    /// When the lease of another host is taken, if each call takes `call`: when the write is sent. `version` is what
    /// the other host has written by a time, and each of its versions names `duration`.
    fn taken(duration: Duration, call: u64, version: impl Fn(u64) -> u64) -> u64 {
        let mut lease = Lease::new("me".into());
        let mut now = 0;
        while now < 300_000 {
            match lease.poll(at(now)) {
                LeaseAction::Wait(until) => now = until.0,
                LeaseAction::Call(Some(_)) => return now,
                LeaseAction::Call(None) => {
                    // At worst the server reads it as soon as it is asked.
                    let read = LeaseRead {
                        duration,
                        ..foreign(&version(now).to_string())
                    };
                    now += call;
                    lease.answered(at(now), false, Ok(Some(read)));
                }
            }
        }
        panic!("it is not taken")
    }

    #[test]
    fn another_host_acts_within_16_s_of_the_death_of_a_holder_and_not_before_its_lease_has_ended() {
        let (call, renewal) = (200, millis(RENEW_EVERY));
        // By a clock that is a thousandth slower than that of the other host.
        let ended = 13_013;
        for dies in 20_000..20_000 + 2 * renewal {
            // The last write is under way when its sender dies.
            let arrives = dies + call;
            let version = |now| {
                if now < arrives {
                    dies.min(now) / renewal
                } else {
                    u64::MAX
                }
            };
            let sent = taken(DURATION, call, version);
            assert!(sent >= arrives + ended, "{dies}: {sent}");
            assert!(sent + call <= dies + 16_000, "{dies}: {sent}");
        }
    }

    #[test]
    fn a_lease_covers_the_longest_operation_while_a_renewal_is_answered_late() {
        assert_eq!(OPERATION_AT_MOST, Duration::from_secs(7));
    }

    #[test]
    fn a_foreign_lease_is_respected_for_the_duration_that_it_names() {
        for seconds in [5, 60] {
            let duration = Duration::from_secs(seconds);
            assert_ne!(duration, DURATION);
            let stands_still = taken(duration, 0, |_| 1);
            assert_eq!(stands_still, millis(duration + duration / DRIFT));
            let renewed_once = taken(duration, 0, |now| u64::from(now >= 1_000));
            assert_eq!(renewed_once, millis(RENEW_EVERY) + stands_still);
        }
    }

    #[test]
    fn a_foreign_lease_that_names_hardly_any_duration_is_taken_when_it_was_not_renewed_between_two_reads() {
        for duration in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(
                taken(duration, 0, |_| 1),
                millis(RENEW_EVERY + RENEW_EVERY / DRIFT)
            );
        }
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_looked_for_before_the_next() {
        let mut lease = Lease::new("me".into());
        lease.poll(at(0));
        lease.answered(at(0), false, Ok(None));
        assert!(matches!(lease.poll(at(0)), LeaseAction::Call(Some(_))));
        lease.answered(at(5_000), false, Err(unreachable()));
        assert_eq!(lease.poll(at(6_000)), LeaseAction::Call(None));
        let mine = LeaseRead {
            holder: "me".into(),
            ..foreign("7")
        };
        lease.answered(at(6_100), false, Ok(Some(mine)));
        let LeaseAction::Call(Some(write)) = lease.poll(at(6_100)) else {
            panic!("no write")
        };
        assert_eq!(write.version.as_deref(), Some("7"));
    }

    #[test]
    fn a_lease_that_cannot_be_renewed_ends() {
        let mut lease = held();
        let end = millis(DURATION);
        assert!(lease.is_held(at(end - 1)));
        lease.answered(at(5_000), false, Err(unreachable()));
        assert!(lease.is_held(at(end - 1)));
        assert!(!lease.is_held(at(end)));
    }

    /// A lease that this host holds from a write that it sent at 0.
    fn held() -> Lease {
        let mut lease = Lease::new("me".into());
        lease.poll(at(0));
        lease.answered(at(0), false, Ok(None));
        lease.poll(at(0));
        let mine = LeaseRead {
            holder: "me".into(),
            ..foreign("1")
        };
        lease.answered(at(0), true, Ok(Some(mine)));
        lease
    }

    #[test]
    fn a_lease_is_given_up_by_a_write_while_it_is_held_and_left_alone_afterwards() {
        let mut lease = held();
        lease.give_up();
        let LeaseAction::Call(Some(write)) = lease.poll(at(1_000)) else {
            panic!("no write")
        };
        assert_eq!((write.holder.as_str(), write.transitions), ("", 0));
        assert!(!lease.is_given_up(), "the write is on its way");
        let mut late = held();
        late.give_up();
        assert_eq!(late.poll(at(millis(DURATION))), LeaseAction::Wait(Boot::MAX));
        assert!(late.is_given_up());
    }

    #[test]
    fn it_is_looked_at_again_when_a_renewal_is_due_and_when_a_call_is_given_up() {
        let mut lease = held();
        let renewal = millis(RENEW_EVERY);
        assert_eq!(lease.deadline(), Boot(renewal));
        assert_eq!(lease.poll(at(1)), LeaseAction::Wait(Boot(renewal)));
        assert!(matches!(lease.poll(at(renewal)), LeaseAction::Call(Some(_))));
        let longest = millis(CALL_LONGEST);
        let cut = renewal + longest;
        assert_eq!(lease.deadline(), Boot(cut));
        assert_eq!(lease.poll(at(cut - 1)), LeaseAction::Wait(Boot(cut)));
        assert_eq!(
            lease.poll(at(cut)),
            LeaseAction::Call(None),
            "it may have been written"
        );
        for n in 1..=4 {
            lease.poll(at(cut + n * longest));
        }
        assert_eq!(lease.deadline(), Boot::default() + DURATION, "it ends then");
    }
}
