//! The simulated cloud on the driver's clock.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_core::call::{CloudRequest, PendingEntry, Session};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_core::contract::{Answer, Code, Doubt, Failure};

use super::{LONGEST, Reply, Sim, lost};
use polity_clouds::Clock;
use polity_clouds::Persist;
use polity_clouds::{BoxFuture, Cloud};
use polity_clouds::{Opened, SessionRequest};

/// A [`Sim`] behind the [`Cloud`] trait. Requests reach it checked and unsealed, by [`Front`](polity_clouds::Front).
///
/// # Guarantees
///
/// - What a call did is stored before its answer leaves, and in the order in which it was done. A process that is
///   killed loses nothing that anybody was told.
pub struct SimCloud {
    sim: Mutex<Sim>,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    persist: Option<Persist>,
}

impl SimCloud {
    /// Puts a simulation on a clock. `persist` stores a snapshot durably before it returns.
    pub fn new(mut sim: Sim, clock: Arc<dyn Clock>, persist: Option<Persist>) -> Self {
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

    fn open_session<'a>(&'a self, request: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        Box::pin(async move {
            let (after_ms, opened) = self.stored(|sim, now| sim.open_session(now, request))?;
            self.clock.sleep_ms(after_ms).await;
            opened
        })
    }

    fn adapter(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Asked of any cloud: whether it is simulated.
pub trait Simulated {
    /// The simulation behind it, for what only a simulation can tell: all VMs, faults to come.
    fn simulation(&self) -> Option<&SimCloud>;
}

impl<C: Cloud + ?Sized> Simulated for C {
    fn simulation(&self) -> Option<&SimCloud> {
        self.adapter()?.downcast_ref()
    }
}

impl Sim {
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
