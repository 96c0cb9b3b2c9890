//! The simulated cloud on the host's clock.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_clouds::{BoxFuture, Clock, Cloud, Opened, SessionRequest};
use polity_core::call::{CloudRequest, Commit, PendingEntry, Preparation, Session, Site};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_core::contract::{Answer, Code, Failure, Resolution};

use crate::kernel::kept::{Disk, Receipt};
use crate::{LONGEST, Reply, Sim, lost};

/// A [`Sim`] behind the [`Cloud`] trait. [`Gateway`](polity_clouds::Gateway) has checked and unsealed the
/// requests that reach it.
///
/// # Guarantees
///
/// - The effects of a call are stored before its answer leaves, in the order in which they happened: an
///   answer waits for everything that was done before it. So a killed process loses nothing that a caller was
///   told.
pub struct SimCloud {
    state: Mutex<State>,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
}

struct State {
    sim: Sim,
    /// The storage of changes; `None`: the simulation ends with its process.
    disk: Option<Disk>,
}

impl SimCloud {
    /// Puts a simulation on a clock, in memory.
    pub fn new(sim: Sim, clock: Arc<dyn Clock>) -> Self {
        Self::over(sim, clock, None)
    }

    /// Puts a simulation on a clock, and its changes on a disk.
    pub(crate) fn kept(mut sim: Sim, clock: Arc<dyn Clock>, disk: Disk) -> Self {
        sim.note_changes();
        Self::over(sim, clock, Some(disk))
    }

    fn over(mut sim: Sim, clock: Arc<dyn Clock>, disk: Option<Disk>) -> Self {
        sim.forget_effects();
        let catalogue = sim.catalogue().clone();
        SimCloud {
            state: Mutex::new(State { sim, disk }),
            catalogue,
            clock,
        }
    }

    /// Looks into the simulation at the clock's present moment: all VMs, faults to come. What it shows may be
    /// lost with the process.
    pub fn inspect<T>(&self, look: impl FnOnce(&mut Sim, u64) -> T) -> T {
        look(&mut self.lock().sim, self.clock.now_ms())
    }

    /// Changes the simulation. Once this has returned, the change is stored.
    ///
    /// # Errors
    /// The change is made but could not be stored.
    pub async fn tell<T>(&self, act: impl FnOnce(&mut Sim, u64) -> T) -> Result<T, Failure> {
        let (done, receipt) = self.act(act);
        stored(receipt).await.map(|()| done)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside is a bug of Polity and leaves at worst an incomplete change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the simulation at once. The changes go to the disk before anybody else can change it. The
    /// receipt tells when they are stored, with all earlier ones.
    fn act<T>(&self, act: impl FnOnce(&mut Sim, u64) -> T) -> (T, Option<Receipt>) {
        let mut state = self.lock();
        let State { sim, disk } = &mut *state;
        let done = act(sim, self.clock.now_ms());
        let is_dirty = sim.take_dirty();
        let receipt = disk.as_mut().and_then(|disk| {
            if is_dirty {
                Some(disk.store(sim.changes()))
            } else {
                // The caller may have read something that is not stored yet, so it waits for that.
                (!disk.is_settled()).then(|| disk.store(Vec::new()))
            }
        });
        (done, receipt)
    }

    /// Returns when the answer's time has come and everything that it rests on is stored.
    async fn answer_after(&self, after_ms: u64, receipt: Option<Receipt>) -> Result<(), Failure> {
        let ((), stored) = futures::future::join(self.clock.sleep_ms(after_ms), stored(receipt)).await;
        stored
    }

    async fn reply(&self, request: CloudRequest) -> Answer {
        let (reply, receipt) = self.act(|sim, now| sim.perform_checked(now, &request));
        let Reply { after_ms, answer } = reply;
        self.answer_after(after_ms, receipt).await?;
        let operation = self.catalogue.operations.get(&request.operation);
        let read = operation.is_some_and(|o| o.effect == OperationEffect::Read);
        answer.unwrap_or_else(|| Err(lost(&request.operation, read)))
    }

    async fn read_before(&self, request: CloudRequest) -> Result<Preparation, Failure> {
        let (prepared, receipt) = self.act(|sim, now| sim.prepare(now, &request.session));
        let after_ms = prepared.as_ref().map_or(LONGEST, |_| 0);
        self.answer_after(after_ms, receipt).await?;
        prepared.unwrap_or_else(|| Err(lost(&request.operation, true)))
    }

    async fn look(&self, session: &Session, entry: &PendingEntry) -> Resolution {
        let looked = self.act(|sim, now| (sim.resolve(now, session, entry), sim.resolving(now, session)));
        let ((doubt, after_ms), receipt) = looked;
        match self.answer_after(after_ms, receipt).await {
            Ok(()) => doubt,
            Err(failure) => Resolution::Unknown(failure.to_string()),
        }
    }
}

/// Waits until the changes are stored.
async fn stored(receipt: Option<Receipt>) -> Result<(), Failure> {
    let Some(receipt) = receipt else {
        return Ok(());
    };
    let why = match receipt.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => why.to_string(),
        Err(_) => "the thread that writes is gone".to_owned(),
    };
    let message = format!("the simulated cloud cannot store what it did: {why}");
    Err(Failure::new(Code::Internal, message).effect_unknown())
}

impl Cloud for SimCloud {
    fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn perform(&self, request: CloudRequest) -> BoxFuture<'_, Answer> {
        Box::pin(self.reply(request))
    }

    fn prepare(&self, request: CloudRequest) -> BoxFuture<'_, Result<Preparation, Failure>> {
        Box::pin(self.read_before(request))
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Answer> {
        Box::pin(self.reply(commit.request))
    }

    fn site<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        Box::pin(async move {
            let (site, receipt) = self.act(|sim, now| sim.site(now, session));
            stored(receipt).await?;
            site
        })
    }

    fn resolve<'a>(&'a self, session: &'a Session, entry: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        Box::pin(self.look(session, entry))
    }

    fn open_session<'a>(&'a self, request: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        Box::pin(async move {
            let ((after_ms, opened), receipt) = self.act(|sim, now| sim.open_session(now, request));
            self.answer_after(after_ms, receipt).await?;
            opened
        })
    }

    fn adapter(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Whether a cloud is simulated.
pub trait Simulated {
    /// The simulation behind the cloud, for what only a simulation can show: all VMs, faults to come.
    fn simulation(&self) -> Option<&SimCloud>;
}

impl<C: Cloud + ?Sized> Simulated for C {
    fn simulation(&self) -> Option<&SimCloud> {
        self.adapter()?.downcast_ref()
    }
}
