//! Where objects are: in memory for reading, in `redb` for keeping, when a file is given.
//!
//! **Flow.** A write holds the writers' lock, works out its changes on what is written ([`Write`]), and waits until they
//! are on the disk; whoever comes to the disk first commits all that wait in one transaction, and shows them to readers and
//! watches ([`line`]). Readers never wait for the disk.
//!
//! **Guarantees.** What was answered was committed before, a refusal too: what it rests on is kept. Changes have
//! resourceVersions without gaps or repeats, also across restarts. All that one request changes (garbage collected
//! dependents included) is in one transaction.
//!
//! **Caveats.** The history for watches is in memory and bounded: a watch that is too far behind, or that
//! began before a restart, is told 410.

mod clock;
mod disk;
mod line;
mod state;
mod write;

use std::{
    fs::File,
    sync::{Mutex, PoisonError, RwLock, RwLockReadGuard},
};

pub use clock::Clock;
pub(crate) use state::{Change, Key, Object, Place, State, Stored};
pub(crate) use write::Write;

use tokio::sync::watch;

use crate::{controllers::budget, http::refusal::Refusal};
use clock::now;
use disk::{Disk, NotKept};
use line::Line;

/// How many changes each resource remembers for watches: at 10,000 writes a second a watcher may be almost half
/// a second behind; a changed object of 2 KB takes some 8 KB here.
const HISTORY: usize = 4_096;

/// How large one object may be, in bytes of JSON: the limit that etcd sets in a real cluster.
const OBJECT: usize = 3 << 19;

/// What can be wrong with the file that keeps the objects.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not ours, is damaged, is in use by another process, or cannot be read or written.
    #[error("opening the database of the standalone API server")]
    Open(#[from] redb::DatabaseError),
    /// Reading what is kept, or writing the first of it.
    #[error("reading the database of the standalone API server")]
    Read(#[from] redb::Error),
    /// An object in the file is not what this version writes.
    #[error("reading {key} from the database of the standalone API server: {why}")]
    Object {
        /// Resource, namespace and name.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The namespaces that are always there could not be written.
    #[error("writing the first objects to the database of the standalone API server: {0}")]
    Begin(String),
}

/// All objects of one standalone server.
pub struct Store {
    clock: Clock,
    seed: [u8; 16],
    /// Writers to memory alone come one after another.
    writer: Mutex<()>,
    /// Writers to a disk.
    line: Option<Line>,
    state: RwLock<State>,
    /// Why nothing will ever be kept again.
    lost: watch::Sender<Option<String>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store that ends with the process. `seed` makes uids and generated names: the same seed and the
    /// same requests give the same ones.
    pub fn in_memory(clock: Clock, seed: [u8; 16]) -> Self {
        Self::with(State::new(0, HISTORY), None, clock, seed)
            .expect("the first write to memory is our own, and no disk can refuse it")
    }

    /// A store kept in `file`: what is in it continues, also the resourceVersions. The file is locked while open.
    ///
    /// # Errors
    /// When the file is no database of ours, damaged, or open in another process.
    pub fn open(file: File, clock: Clock, seed: [u8; 16]) -> Result<Self, StoreError> {
        let disk = Disk::open(file)?;
        let state = disk.load(HISTORY)?;
        Self::with(state, Some(disk), clock, seed).map_err(|refusal| StoreError::Begin(refusal.message))
    }

    /// The same, remembering at most `changes` changes of each resource for watches that begin in the past.
    #[must_use]
    pub fn with_history(self, changes: usize) -> Self {
        self.state.write().unwrap_or_else(PoisonError::into_inner).history = changes;
        self
    }

    fn with(state: State, disk: Option<Disk>, clock: Clock, seed: [u8; 16]) -> Result<Self, Refusal> {
        let line = disk.map(|disk| Line::new(disk, state.copy()));
        let store = Self {
            clock,
            seed,
            writer: Mutex::default(),
            line,
            state: RwLock::new(state),
            lost: watch::Sender::new(None),
        };
        store.write(crate::controllers::namespaces::begin)?;
        Ok(store)
    }

    /// Whether writes wait for a disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.line.is_some()
    }

    /// What is stored now. Hold it briefly: writers wait for it.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the clock.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        now(&self.clock)
    }

    /// Whether something that is stored is no longer true, by the clock alone.
    pub(crate) fn is_late(&self) -> bool {
        self.read().late_budgets(self.now()).next().is_some()
    }

    /// Brings that up to date.
    pub(crate) fn catch_up(&self) -> Result<(), Refusal> {
        if self.is_late() {
            self.write(|_| Ok(()))
        } else {
            Ok(())
        }
    }

    /// Works out changes and makes them, all or none. A refusal changes nothing.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&mut Write<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if let Some(line) = &self.line {
            return line.write(self, work);
        }
        // A panic inside `work` leaves the state as it was: it is changed below only.
        let _alone = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, changes) = self.work_out(&self.read(), work);
        if !changes.is_empty() {
            self.change(changes);
        }
        answer
    }

    /// What a write answers, and what it changes of this state: nothing where it is refused.
    fn work_out<T>(
        &self,
        state: &State,
        work: impl FnOnce(&mut Write<'_>) -> Result<T, Refusal>,
    ) -> (Result<T, Refusal>, Vec<Change>) {
        let mut write = Write::new(state, self.now(), &self.seed);
        budget::catch_up(&mut write);
        let answer = match work(&mut write) {
            Ok(answer) => answer,
            Err(refusal) => return (Err(refusal), Vec::new()),
        };
        budget::follow(&mut write);
        let changes = write.into_changes();
        match changes.iter().find(|change| change.object.json().len() > OBJECT) {
            Some(change) => {
                let refusal = Refusal::object_too_large(&change.key.name, OBJECT);
                (Err(refusal), Vec::new())
            }
            None => (Ok(answer), changes),
        }
    }

    /// Shows changes to readers and watches.
    fn change(&self, changes: Vec<Change>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.apply(changes);
    }

    /// What a write that was not kept is answered. What keeps the disk from it is said once.
    fn not_kept(&self, disk: &mut Disk, why: &NotKept) -> Refusal {
        let said = why.to_string();
        if disk.is_news(&said) {
            tracing::error!("nothing is stored: {said}");
        }
        if matches!(why, NotKept::Deleted) {
            self.lost.send_replace(Some(said.clone()));
        }
        Refusal::internal(&said)
    }

    /// Waits until nothing will ever be kept again, and says why.
    pub async fn lost(&self) -> String {
        let mut lost = self.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The sender is this store's own.
            Err(_) => std::future::pending().await,
        }
    }
}
