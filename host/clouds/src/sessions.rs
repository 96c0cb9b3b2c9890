//! Open sessions. All bindings of a cloud share them.
//!
//! [`Sessions`] is a state machine without clock and I/O: the caller passes the time. [`Gateway`](crate::Gateway)
//! has one for every adapter. A simulation that calls an adapter directly has its own.

use std::collections::BTreeMap;

use polity_core::call::Session;
use polity_core::contract::{Answer, Code, Failure, NO_SESSION};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::redact::Redactor;
use crate::session::{Opened, PlanSecret, SessionPlan};

/// The most sessions that are kept. Beyond that, the session that was unused for longest is dropped. A host has
/// far fewer identities, and so many sessions are still fast to search.
pub const MOST_SESSIONS: usize = 1_024;
/// The milliseconds without use after which a session is dropped.
pub const IDLE: u64 = 3_600_000;
/// A session that ends within this many milliseconds is no longer handed out, so that a pass which begins
/// with it can end with it.
pub const MARGIN: u64 = 60_000;

/// Open sessions by the digest of their plan.
///
/// # Guarantees
///
/// - Equal plans share a session, also if different objects ask. A plan with another digest of a Secret is another plan.
/// - A handle is valid for the object that it was answered to, as long as its session is kept. It leads to no session of
///   another plan or of another opening of the cloud.
/// - Failures are not kept: neither a session that could not be opened, nor a session that the cloud answered with
///   `unauthenticated`.
/// - Once a Secret is seen with another digest, all sessions from its old content are dropped.
pub struct Sessions {
    /// The key of the handles. A valid handle cannot be made without it.
    key: [u8; 32],
    /// The present session of each plan.
    present: BTreeMap<[u8; 32], u64>,
    kept: BTreeMap<u64, Kept>,
    /// The tokens of sessions that were dropped, and that the adapter has not ended yet.
    dropped: Vec<String>,
    serial: u64,
}

struct Kept {
    plan: [u8; 32],
    opened: Opened,
    secrets: Vec<(PlanSecret, String)>,
    redactor: Redactor,
    used: u64,
}

impl Sessions {
    /// No session is open yet. Handles are as hard to guess as the seed.
    pub fn new(seed: u64) -> Self {
        Self::of_opening(seed, 0)
    }

    /// The sessions of one opening of a cloud. A cloud that is opened again takes another number: sessions are counted
    /// from one, so the number keeps a handle of the earlier opening from being valid at this one.
    pub fn of_opening(seed: u64, opening: u64) -> Self {
        let key = Sha256::new_with_prefix(b"polity sessions")
            .chain_update(seed.to_le_bytes())
            .chain_update(opening.to_le_bytes());
        Sessions {
            key: key.finalize().into(),
            present: BTreeMap::new(),
            kept: BTreeMap::new(),
            dropped: Vec::new(),
            serial: 0,
        }
    }

    /// The session of a plan, if one is open and lasts long enough: `{handle, reused: true, attributes}`.
    pub fn get(&mut self, now: u64, plan: &SessionPlan, owner: &str) -> Option<Value> {
        self.sweep(now);
        let serial = *self.present.get(&plan.digest())?;
        let kept = self.kept.get_mut(&serial)?;
        if kept
            .opened
            .expires
            .is_some_and(|expires| now.saturating_add(MARGIN) >= expires)
        {
            return None;
        }
        kept.used = now;
        Some(self.answer(serial, owner, true))
    }

    /// Keeps a new session and answers it. `redactor` knows the values from which the session was made; it
    /// also learns the session's own token. If another caller has opened a session for the plan meanwhile,
    /// the other session is kept, and this one is dropped.
    pub fn put(
        &mut self,
        now: u64,
        plan: &SessionPlan,
        owner: &str,
        opened: Opened,
        mut redactor: Redactor,
    ) -> Value {
        redactor.learn(&opened.token);
        self.rotate(plan);
        if let Some(there) = self.get(now, plan, owner) {
            self.dropped.push(opened.token);
            return there;
        }
        while self.kept.len() >= MOST_SESSIONS {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used);
            let Some((oldest, _)) = oldest else { break };
            self.evict(*oldest);
        }
        self.serial += 1;
        let kept = Kept {
            plan: plan.digest(),
            opened,
            secrets: plan.secrets().to_vec(),
            redactor,
            used: now,
        };
        self.kept.insert(self.serial, kept);
        self.present.insert(plan.digest(), self.serial);
        self.answer(self.serial, owner, false)
    }

    /// The caller's session, with the adapter's own token in place of the handle.
    pub fn enter(&mut self, now: u64, session: &Session) -> Result<Session, Failure> {
        let Some(handle) = &session.handle else {
            return Ok(session.clone());
        };
        if handle == NO_SESSION {
            let message = "the identity policy granted no session for a cloud (its credential plan was null)";
            return Err(Failure::new(Code::PermissionDenied, message));
        }
        self.sweep(now);
        let is_of = |serial: &u64| {
            let kept = self.kept.get(serial);
            kept.is_some_and(|kept| *handle == self.handle(*serial, &kept.plan, &session.owner))
        };
        let serial = serial(handle).filter(is_of);
        let kept = serial.and_then(|serial| self.kept.get_mut(&serial));
        let kept = kept.ok_or_else(|| {
            let message = "the session's handle is not valid for this object, or its session has ended";
            Failure::new(Code::Unauthenticated, message)
        })?;
        kept.used = now;
        Ok(Session {
            handle: Some(kept.opened.token.clone()),
            ..session.clone()
        })
    }

    /// Scrubs the values from which the session of a handle was made.
    pub(crate) fn redactor(&self, handle: Option<&str>) -> Redactor {
        let kept = handle.and_then(serial).and_then(|serial| self.kept.get(&serial));
        kept.map(|kept| kept.redactor.clone()).unwrap_or_default()
    }

    /// Learns of the answer to a call under a handle. A session that the cloud no longer accepts is dropped.
    pub(crate) fn on_answer(&mut self, handle: Option<&str>, answer: &Answer) {
        let is_refused = matches!(answer, Err(failure) if failure.code == Code::Unauthenticated);
        if let Some(serial) = handle.and_then(serial)
            && is_refused
        {
            self.evict(serial);
        }
    }

    /// The answer to a call under a handle, scrubbed of the values from which the session was made. A session
    /// that the cloud no longer accepts is dropped.
    pub fn answered(&mut self, handle: Option<&str>, answer: Answer) -> Answer {
        let answer = self.redactor(handle).answer(answer);
        self.on_answer(handle, &answer);
        answer
    }

    /// The tokens of the sessions that were dropped since the last call. The caller lets the adapter end them.
    pub fn take_dropped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dropped)
    }

    /// The number of sessions that are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether no session is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops the sessions that were made from other values of the Secrets that this plan names.
    fn rotate(&mut self, plan: &SessionPlan) {
        let other = |(secret, digest): &(PlanSecret, String)| {
            plan.secrets()
                .iter()
                .any(|(named, present)| named == secret && present != digest)
        };
        self.evict_all(|kept| kept.secrets.iter().any(other));
    }

    fn sweep(&mut self, now: u64) {
        self.evict_all(|kept| {
            let ended = kept.opened.expires.is_some_and(|expires| now >= expires);
            ended || now >= kept.used.saturating_add(IDLE)
        });
    }

    fn evict_all(&mut self, doomed: impl Fn(&Kept) -> bool) {
        let doomed: Vec<u64> = self
            .kept
            .iter()
            .filter(|(_, kept)| doomed(kept))
            .map(|(serial, _)| *serial)
            .collect();
        doomed.into_iter().for_each(|serial| self.evict(serial));
    }

    fn evict(&mut self, serial: u64) {
        let Some(kept) = self.kept.remove(&serial) else {
            return;
        };
        if self.present.get(&kept.plan) == Some(&serial) {
            self.present.remove(&kept.plan);
        }
        self.dropped.push(kept.opened.token);
    }

    fn answer(&self, serial: u64, owner: &str, reused: bool) -> Value {
        let Kept { plan, opened, .. } = &self.kept[&serial];
        json!({"handle": self.handle(serial, plan, owner), "reused": reused, "attributes": opened.attributes})
    }

    /// A handle: `session-7-` and 128 bits of a digest. The other half of the digest is left out, so that a caller
    /// cannot extend the digest to the digest of another owner.
    fn handle(&self, serial: u64, plan: &[u8; 32], owner: &str) -> String {
        let digest = Sha256::new_with_prefix(self.key)
            .chain_update(serial.to_le_bytes())
            .chain_update(plan);
        let digest = digest.chain_update(owner).finalize();
        let half: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{serial}-{half}")
    }
}

const PREFIX: &str = "session-";

fn serial(handle: &str) -> Option<u64> {
    handle.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests;
