//! Sessions that are open, shared by all bindings of a cloud.
//!
//! A state machine without clock and I/O: it is told the time. [`Gateway`](crate::Gateway) keeps one for every adapter; a
//! simulation that drives an adapter directly keeps its own.

use std::collections::BTreeMap;

use polity_core::call::Session;
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::redact::Redactor;
use crate::session::{Opened, PlanSecret, SessionPlan};

/// So many are kept; the one that was used longest ago goes first. Far more than a host has identities, and few enough
/// to search.
pub const MOST_SESSIONS: usize = 1_024;
/// Milliseconds after which one that nobody used is dropped.
pub const IDLE: u64 = 3_600_000;
/// Milliseconds before its end from which on a session is not handed out any more: a pass that begins with it is to
/// end with it.
pub const MARGIN: u64 = 60_000;

/// Sessions by the digest of their plan.
///
/// # Guarantees
///
/// - Equal plans share one session, whoever asks; a plan with another digest of a Secret is another plan.
/// - A handle is valid for the object it was answered to, as long as its session is kept.
/// - What failed is not kept: neither a session that could not be opened, nor one that the cloud called
///   `unauthenticated`.
/// - Once a Secret is seen with another digest, no session made of the old one is left.
pub struct Sessions {
    /// Handles are made with it: nobody who lacks it can make one.
    key: [u8; 32],
    /// The present one of each plan.
    present: BTreeMap<[u8; 32], u64>,
    kept: BTreeMap<u64, Kept>,
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
    /// None yet. Handles are as hard to guess as the seed.
    pub fn new(seed: u64) -> Self {
        let key = Sha256::new_with_prefix(b"polity sessions").chain_update(seed.to_le_bytes());
        Sessions {
            key: key.finalize().into(),
            present: BTreeMap::new(),
            kept: BTreeMap::new(),
            serial: 0,
        }
    }

    /// The session of a plan, if there is one that lasts: `{handle, reused: true, attributes}`.
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

    /// Keeps a session that was opened, and answers it. `redactor` knows the values it was made of, and from now on what
    /// the session is known by as well. Where somebody else was faster, theirs is kept.
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

    /// The caller's session with what the adapter knows it by in place of the handle.
    pub fn enter(&mut self, now: u64, session: &Session) -> Result<Session, Failure> {
        let Some(handle) = &session.handle else {
            return Ok(session.clone());
        };
        self.sweep(now);
        let serial = serial(handle).filter(|serial| *handle == self.handle(*serial, &session.owner));
        let kept = serial.and_then(|serial| self.kept.get_mut(&serial));
        let kept = kept.ok_or_else(|| {
            let message = "the session's handle is not valid here, or not any more";
            Failure::new(Code::Unauthenticated, message)
        })?;
        kept.used = now;
        Ok(Session {
            handle: Some(kept.opened.token.clone()),
            ..session.clone()
        })
    }

    /// What a call under a handle was answered, scrubbed of what its session was made of. A session that the cloud
    /// does not take any more is dropped.
    pub fn answered(&mut self, handle: Option<&str>, answer: Answer) -> Answer {
        let Some(serial) = handle.and_then(serial) else {
            return answer;
        };
        let refused = matches!(&answer, Err(failure) if failure.code == Code::Unauthenticated);
        let answer = match self.kept.get(&serial) {
            Some(kept) => kept.redactor.answer(answer),
            None => answer,
        };
        if refused {
            self.evict(serial);
        }
        answer
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops what was made of other values of the Secrets that this plan names.
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
    }

    fn answer(&self, serial: u64, owner: &str, reused: bool) -> Value {
        let attributes = &self.kept[&serial].opened.attributes;
        json!({"handle": self.handle(serial, owner), "reused": reused, "attributes": attributes})
    }

    /// `session-7-` and 128 bits of a digest. Half of it is withheld, so that it cannot be extended.
    fn handle(&self, serial: u64, owner: &str) -> String {
        let digest = Sha256::new_with_prefix(self.key).chain_update(serial.to_le_bytes());
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
