//! The simulated cloud on the driver's clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_core::call::{CloudRequest, PendingEntry, Session};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_core::contract::{Answer, Code, CredentialPlan, Doubt, Failure};
use serde_json::json;

use super::config::Account;
use super::draw::draw;
use super::world::Handle;
use super::{LONGEST, Reply, Sim, lost};
use crate::adapters::Persist;
use crate::cloud::{BoxFuture, Cloud};

/// The driver's clock, which in standalone is virtual. The `since` of pending entries must be of the same clock.
pub trait SimClock: Send + Sync {
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Passes so many milliseconds of this clock.
    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()>;
}

/// A [`Sim`] behind the [`Cloud`] trait. Requests reach it checked and unsealed, by [`Front`](crate::Front).
///
/// # Guarantees
///
/// - What a call did is stored before its answer leaves, and in the order in which it was done. A process that is
///   killed loses nothing that anybody was told.
pub struct SimCloud {
    sim: Mutex<Sim>,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn SimClock>,
    persist: Option<Persist>,
}

impl SimCloud {
    /// Puts a simulation on a clock. `persist` stores a snapshot durably before it returns.
    pub fn new(mut sim: Sim, clock: Arc<dyn SimClock>, persist: Option<Persist>) -> Self {
        sim.forget_effects();
        let catalogue = sim.catalogue().clone();
        SimCloud {
            sim: Mutex::new(sim),
            catalogue,
            clock,
            persist,
        }
    }

    /// Looks into the simulation, at the clock's present moment: all VMs, faults to come.
    pub fn inspect<T>(&self, look: impl FnOnce(&mut Sim, u64) -> T) -> T {
        let mut sim = self.lock();
        look(&mut sim, self.clock.now_ms())
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        // A panic inside is a defect of ours, and half a change at worst.
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at once and stores what it changed, before anybody else does something.
    fn stored<T>(&self, act: impl FnOnce(&mut Sim, u64) -> T) -> Result<T, Failure> {
        let mut sim = self.lock();
        let done = act(&mut sim, self.clock.now_ms());
        if sim.take_dirty()
            && let Some(persist) = &self.persist
        {
            persist(&sim.snapshot()).map_err(|e| {
                sim.dirty = true;
                let message = format!("the simulated cloud cannot store what it did: {e}");
                Failure::new(Code::Internal, message).effect_unknown()
            })?;
        }
        Ok(done)
    }

    async fn reply(&self, request: CloudRequest) -> Answer {
        let Reply { after_ms, answer } = self.stored(|sim, now| sim.perform_checked(now, &request))?;
        self.clock.sleep_ms(after_ms).await;
        let operation = self.catalogue.operations.get(&request.operation);
        let read = operation.is_some_and(|o| o.effect == OperationEffect::Read);
        answer.unwrap_or_else(|| Err(lost(&request.operation, read)))
    }

    async fn look(&self, session: &Session, entry: &PendingEntry) -> Doubt {
        let looked = self.stored(|sim, now| (sim.settle(now, session, entry), sim.settling(now, session)));
        let (doubt, after_ms) = looked.unwrap_or((Doubt::Unknown, 0));
        self.clock.sleep_ms(after_ms).await;
        doubt
    }
}

impl Cloud for SimCloud {
    fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.reply(request))
    }

    fn settle<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Doubt> {
        Box::pin(self.look(session, entry))
    }

    fn credential<'a>(&'a self, plan: &'a CredentialPlan, owner: &'a str) -> BoxFuture<'a, Answer> {
        let answer = self
            .stored(|sim, now| sim.credential(now, plan, owner))
            .and_then(|answer| answer);
        Box::pin(std::future::ready(answer))
    }

    fn simulation(&self) -> Option<&SimCloud> {
        Some(self)
    }
}

impl Sim {
    /// A session as the account that the plan names: `{handle, principal, account, cached}`.
    pub fn credential(&mut self, now_ms: u64, plan: &CredentialPlan, owner: &str) -> Answer {
        let now = self.advance(now_ms);
        let plan = self.checked.credential(plan)?;
        if let Some(unreachable) = self.unreachable(now) {
            return Err(unreachable.unwrap_or_else(|| lost("credential", true)));
        }
        let name = plan["account"].as_str().unwrap_or_default();
        let Some(Account { name, principal }) = self.config.accounts.iter().find(|a| a.name == name) else {
            return Err(Failure::new(
                Code::PermissionDenied,
                format!("no access to account {name:?}"),
            ));
        };
        let subject = json!([owner, name]).to_string();
        let handle = format!("session-{:016x}", draw(self.world.seed, "handle", &subject, 0));
        let record = Handle {
            owner: owner.to_owned(),
            account: name.clone(),
        };
        let cached = self.world.handles.insert(handle.clone(), record).is_some();
        self.dirty |= !cached;
        Ok(json!({"handle": handle, "principal": principal, "account": name, "cached": cached}))
    }

    /// How long a look takes.
    fn settling(&mut self, now: u64, session: &Session) -> u64 {
        match self.unreachable(now) {
            Some(None) => LONGEST,
            _ => {
                let draw = self.world.draw(&session.owner);
                self.config.answers.pick(draw).min(LONGEST)
            }
        }
    }
}
