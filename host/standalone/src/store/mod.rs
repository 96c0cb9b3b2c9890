//! The store: objects are in memory for reading, and in `redb` if a file is given.
//!
//! **Flow.** A write holds the writers' lock, works out its changes on the newest state ([`Write`]), and
//! waits until they are on the disk. The first writer that gets to the disk commits all waiting changes in
//! one transaction, and shows them to readers and watches ([`write_queue`]). Readers never wait for the disk.
//!
//! **Guarantees.** Everything that an answer rests on was committed before the answer, also if it is a
//! refusal. Changes have resourceVersions without gaps and without repeats, also across restarts. All changes
//! of one request are in one transaction, garbage collection included.
//!
//! **Caveats.** The history for watches is in memory and limited. A watch that is too far behind, or that
//! began before a restart, is answered 410.

mod clock;
mod disk;
mod state;
mod write;
mod write_queue;

use std::{
    fs::File,
    sync::{Mutex, PoisonError, RwLock, RwLockReadGuard},
};

pub use clock::Clock;
pub(crate) use state::{Change, Draft, Key, Object, Place, State, Stored};
pub(crate) use write::Write;

use tokio::sync::watch;

use crate::{controllers::budget, http::refusal::Refusal};
use clock::now;
use disk::{Disk, NotKept};
use write_queue::WriteQueue;

/// The number of changes that each resource remembers for watches. At 10,000 writes a second a watch may be
/// almost half a second behind. It remembers fewer of large objects (`state.rs`).
const HISTORY: usize = 4_096;

/// The most bytes of JSON of one object: the limit of etcd in a real cluster.
const OBJECT: usize = 3 << 19;

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not a database of this program, is damaged, is in use by another process, or cannot be
    /// read or written.
    #[error("opening the database of the standalone API server")]
    Open(#[from] redb::DatabaseError),
    /// The objects cannot be read, or the first of them cannot be written.
    #[error("reading the database of the standalone API server")]
    Read(#[from] redb::Error),
    /// An object in the file has a form that this version does not write.
    #[error("reading {key} from the database of the standalone API server: {why}")]
    Object {
        /// The resource, namespace and name.
        key: String,
        /// The error in the object.
        why: String,
    },
    /// The permanent namespaces cannot be written.
    #[error("writing the first objects to the database of the standalone API server: {0}")]
    Begin(String),
}

/// All objects of one standalone server.
pub struct Store {
    clock: Clock,
    seed: [u8; 16],
    /// Held by a writer to memory, so that there is one at a time.
    writer: Mutex<()>,
    /// The writers to a disk; `None` in memory.
    write_queue: Option<WriteQueue>,
    state: RwLock<State>,
    /// The reason why objects can never be stored again; `None` as long as they can.
    lost: watch::Sender<Option<String>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store that ends with the process. `seed` determines uids and generated names: the same seed
    /// and the same requests give the same ones.
    pub fn in_memory(clock: Clock, seed: [u8; 16]) -> Self {
        Self::with(State::new(0, HISTORY), None, clock, seed)
            .expect("the first write to memory is our own, and no disk can refuse it")
    }

    /// A store in `file`. Its objects and resourceVersions continue. The file is locked while it is open.
    ///
    /// # Errors
    /// The file is not a database of this program, is damaged, or is open in another process.
    pub fn open(file: File, clock: Clock, seed: [u8; 16]) -> Result<Self, StoreError> {
        let disk = Disk::open(file)?;
        let state = disk.load(HISTORY)?;
        Self::with(state, Some(disk), clock, seed).map_err(|refusal| StoreError::Begin(refusal.message))
    }

    /// The same store, which remembers at most `changes` changes of each resource for watches that begin in
    /// the past. Tests outrun a short one.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn with_history(self, changes: usize) -> Self {
        self.state.write().unwrap_or_else(PoisonError::into_inner).history = changes;
        self
    }

    /// The revision of the newest change. What time alone has put out of date is updated first. Tests look many times,
    /// and read only what has changed.
    #[cfg(feature = "simulation")]
    pub fn revision(&self) -> u64 {
        // A refusal leaves what is there, and the next look tries again.
        let _ = self.catch_up();
        self.read().revision
    }

    fn with(state: State, disk: Option<Disk>, clock: Clock, seed: [u8; 16]) -> Result<Self, Refusal> {
        let write_queue = disk.map(|disk| WriteQueue::new(disk, state.copy()));
        let store = Self {
            clock,
            seed,
            writer: Mutex::default(),
            write_queue,
            state: RwLock::new(state),
            lost: watch::Sender::new(None),
        };
        store.write(crate::controllers::namespaces::begin)?;
        Ok(store)
    }

    /// Whether writes wait for a disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.write_queue.is_some()
    }

    /// The present state. Hold it only briefly, because writers wait for it.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the clock.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        now(&self.clock)
    }

    /// Whether a stored status is out of date by time alone.
    pub(crate) fn is_late(&self) -> bool {
        self.read().late_budgets(self.now()).next().is_some()
    }

    /// Updates the statuses that are out of date by time alone.
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
        if let Some(write_queue) = &self.write_queue {
            return write_queue.write(self, work);
        }
        // A panic inside `work` leaves the state as it was, because only the code below changes it.
        let _alone = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, changes) = self.work_out(&self.read(), work);
        if !changes.is_empty() {
            self.change(changes);
        }
        answer
    }

    /// The answer and the changes of a write on this state. A refused write has no changes.
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

    /// The refusal of a write that was not stored. The reason is logged once.
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

    /// Waits until objects can never be stored again, and returns the reason.
    pub async fn lost(&self) -> String {
        let mut lost = self.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The sender belongs to this store, so this cannot happen.
            Err(_) => std::future::pending().await,
        }
    }
}
