//! Writers that wait for the disk: one of them commits for all.
//!
//! A write is worked out on the newest state, which may not be stored yet. Then it waits. The next writer
//! that gets to the disk commits everything that waits, in its order, and shows it to readers. So many writes
//! share one synchronisation of the disk, and each is answered when it is stored. If a commit fails, all
//! writes that waited for it fail, with those that were worked out on them. The next write begins from the
//! stored state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::disk::{Disk, NotKept};
use super::state::{Change, State};
use super::{Refusal, Store, Write};

/// Writers to a disk.
pub(super) struct WriteQueue {
    disk: Mutex<Disk>,
    writers: Mutex<Writers>,
}

struct Writers {
    /// The newest state, stored or not.
    ahead: State,
    /// The writes that wait for the disk, in their order.
    waiting: Vec<Waiting>,
    /// Whether a part of `ahead` could not be stored.
    is_wrong: bool,
}

struct Waiting {
    changes: Vec<Change>,
    receipt: Arc<Receipt>,
}

/// The result of a wait.
#[derive(Default)]
struct Receipt {
    is_kept: AtomicBool,
    failed: OnceLock<Refusal>,
}

impl Receipt {
    /// The result; `None` as long as no writer has got to the disk.
    fn told(&self) -> Option<Result<(), Refusal>> {
        match self.failed.get() {
            Some(refusal) => Some(Err(refusal.clone())),
            None => self.is_kept.load(Ordering::Acquire).then_some(Ok(())),
        }
    }
}

impl WriteQueue {
    pub(super) fn new(disk: Disk, ahead: State) -> Self {
        WriteQueue {
            disk: Mutex::new(disk),
            writers: Mutex::new(Writers {
                ahead,
                waiting: Vec::new(),
                is_wrong: false,
            }),
        }
    }

    fn writers(&self) -> MutexGuard<'_, Writers> {
        // A panic while a write is worked out changes nothing.
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works out a write. Waits until it is stored, with everything on which it was worked out.
    pub(super) fn write<T>(
        &self,
        store: &Store,
        work: impl FnOnce(&mut Write<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut writers = self.right(store)?;
        let (answer, changes) = store.work_out(&writers.ahead, work);
        let receipt = Arc::new(Receipt::default());
        writers.ahead.apply(changes.clone());
        writers.waiting.push(Waiting {
            changes,
            receipt: receipt.clone(),
        });
        drop(writers);
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if receipt.told().is_none() {
            self.commit(store, &mut disk);
        }
        drop(disk);
        match receipt.told() {
            Some(Ok(())) => answer,
            Some(Err(refusal)) => Err(refusal),
            None => Err(Refusal::internal("a write was lost on its way to the disk")),
        }
    }

    /// The writers, on a correct state: after a failure it is what turns out to be stored.
    fn right(&self, store: &Store) -> Result<MutexGuard<'_, Writers>, Refusal> {
        let writers = self.writers();
        if !writers.is_wrong {
            return Ok(writers);
        }
        drop(writers);
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writers = self.writers();
        if writers.is_wrong {
            let kept = disk.recover(store.read().revision);
            let kept = kept.map_err(|why| store.not_kept(&mut disk, &why))?;
            store.change(kept);
            writers.ahead = store.read().copy();
            writers.is_wrong = false;
        }
        Ok(writers)
    }

    /// Commits the waiting writes.
    fn commit(&self, store: &Store, disk: &mut Disk) {
        let waiting = std::mem::take(&mut self.writers().waiting);
        let changes: Vec<Change> = waiting.iter().flat_map(|one| one.changes.clone()).collect();
        let kept = if changes.is_empty() {
            Ok(())
        } else {
            disk.commit(&changes)
        };
        match kept {
            Ok(()) => {
                store.change(changes);
                let receipts = waiting.iter().map(|one| &one.receipt);
                receipts.for_each(|receipt| receipt.is_kept.store(true, Ordering::Release));
            }
            Err(why) => self.fail(store, disk, waiting, &why),
        }
    }

    /// Fails the waiting writes and those that were worked out on them since.
    fn fail(&self, store: &Store, disk: &mut Disk, mut waiting: Vec<Waiting>, why: &NotKept) {
        let refusal = store.not_kept(disk, why);
        let mut writers = self.writers();
        writers.is_wrong = true;
        waiting.append(&mut writers.waiting);
        for one in waiting {
            // This receipt has no result yet.
            let _ = one.receipt.failed.set(refusal.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::JoinHandle;

    use serde_json::json;

    use super::super::disk::tests::Full;
    use super::super::{Clock, HISTORY, Key, Store};
    use super::*;

    fn store(full: &Full) -> Arc<Store> {
        let disk = full.disk();
        let state = disk.load(HISTORY).unwrap();
        let clock: Clock = Arc::new(|| std::time::UNIX_EPOCH);
        Arc::new(Store::with(state, Some(disk), clock, [0; 16]).unwrap())
    }

    fn key(name: &str) -> Key {
        Key {
            resource: "configmaps".into(),
            namespace: "default".into(),
            name: name.into(),
        }
    }

    fn put(store: &Store, name: &str) -> Result<u64, Refusal> {
        store.write(|write| {
            write.put(&key(name), json!({"metadata": {"name": name, "uid": name}}));
            Ok(write.revision())
        })
    }

    /// Writers that all wait for the disk while the test holds it.
    fn waiting(store: &Arc<Store>, count: usize) -> Vec<JoinHandle<Result<u64, Refusal>>> {
        let queue = store.write_queue.as_ref().unwrap();
        let disk = queue.disk.lock().unwrap();
        let write = |number| {
            let store = store.clone();
            std::thread::spawn(move || put(&store, &format!("c-{number}")))
        };
        let writers: Vec<_> = (0..count).map(write).collect();
        while queue.writers().waiting.len() < count {
            std::thread::yield_now();
        }
        assert!(
            store.read().get(&key("c-0")).is_none(),
            "nobody sees what is not kept"
        );
        drop(disk);
        writers
    }

    fn told(writers: Vec<JoinHandle<Result<u64, Refusal>>>) -> Vec<Result<u64, Refusal>> {
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    }

    #[test]
    fn writers_that_wait_are_kept_by_one_commit() {
        let full = Full::default();
        let store = store(&full);
        let before = full.syncs();
        put(&store, "alone").unwrap();
        let one = full.syncs() - before;
        let before = full.syncs();
        let mut revisions: Vec<u64> = told(waiting(&store, 8)).into_iter().map(Result::unwrap).collect();
        assert_eq!(full.syncs() - before, one);
        revisions.sort_unstable();
        assert!(
            revisions.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{revisions:?}"
        );
        assert_eq!(full.disk().load(8).unwrap().revision, revisions[7]);
        assert!(store.read().get(&key("c-7")).is_some());
    }

    #[test]
    fn when_a_commit_fails_all_that_waited_fail_and_the_next_write_begins_from_what_is_kept() {
        let full = Full::default();
        let store = store(&full);
        let before = put(&store, "alone").unwrap();
        full.set(true);
        assert!(told(waiting(&store, 8)).iter().all(Result::is_err));
        assert!(put(&store, "later").is_err());
        full.set(false);
        assert_eq!(put(&store, "at last").unwrap(), before + 1);
        assert!(store.read().get(&key("c-0")).is_none());
        assert!(store.read().get(&key("at last")).is_some());
    }

    #[test]
    fn a_refusal_waits_for_what_it_rests_on() {
        let full = Full::default();
        let store = store(&full);
        let queue = store.write_queue.as_ref().unwrap();
        let disk = queue.disk.lock().unwrap();
        let write = |work: fn(&Store) -> Result<u64, Refusal>| {
            let store = store.clone();
            std::thread::spawn(move || work(&store))
        };
        let first = write(|store| put(store, "c"));
        while queue.writers().waiting.is_empty() {
            std::thread::yield_now();
        }
        let second = write(|store| {
            store.write(|write| match write.get(&key("c")) {
                Some(_) => Err(Refusal::internal("it is there already")),
                None => Ok(0),
            })
        });
        while queue.writers().waiting.len() < 2 {
            std::thread::yield_now();
        }
        full.set(true);
        drop(disk);
        assert!(first.join().unwrap().is_err());
        let refused = second.join().unwrap().unwrap_err();
        assert!(!refused.message.contains("already"), "{refused}");
    }
}
