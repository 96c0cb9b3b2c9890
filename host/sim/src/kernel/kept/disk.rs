//! The database and the thread that writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use futures::channel::oneshot;
use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::hold::Hold;
use super::{Change, DiskError, NotKept, Record, RecordKey};

/// The records: table and key lead to the value. Key and value are JSON.
const RECORDS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("records");

/// The page cache of the database in bytes. All state is in memory, so little is read from the database.
const CACHE: usize = 16 << 20;

type Opens = dyn Fn() -> Result<Database, DatabaseError> + Send;

/// The result of storing changes. `Ok` means that they survive the end of the process and of the machine.
pub(crate) type Receipt = oneshot::Receiver<Result<(), NotKept>>;

/// A database. Its writer puts all waiting changes into one transaction.
///
/// # Guarantees
///
/// - Changes are stored in the order in which they are handed in; a later change never without the earlier
///   ones.
/// - Changes that could not be stored are tried again with the next ones.
/// - When it is dropped, every change that was handed in is stored or was refused.
pub(crate) struct Disk {
    /// `None` while it is being dropped.
    sender: Option<Sender<Batch>>,
    writer: Option<JoinHandle<()>>,
    handed_in: u64,
    /// The number of batches that are stored.
    stored: Arc<AtomicU64>,
    hold: Hold,
}

/// The changes of one call.
struct Batch {
    nth: u64,
    changes: Vec<Change>,
    receipt: oneshot::Sender<Result<(), NotKept>>,
}

impl Disk {
    pub(super) fn open(file: File) -> Result<(Self, Vec<Record>), DiskError> {
        let again = file.try_clone();
        let again = again.map_err(|e| DiskError::Open(Box::new(redb::Error::Io(e))))?;
        let opens = move || {
            let file = again.try_clone().map_err(redb::StorageError::from)?;
            Builder::new().set_cache_size(CACHE).create_file(file)
        };
        Self::over(Box::new(opens), Some(file))
    }

    fn over(opens: Box<Opens>, file: Option<File>) -> Result<(Self, Vec<Record>), DiskError> {
        let database = opens().map_err(|e| DiskError::Open(Box::new(e.into())))?;
        let records = load(&database).map_err(|e| DiskError::Open(Box::new(e)))?;
        let (sender, batches) = channel();
        let stored = Arc::new(AtomicU64::new(0));
        let hold = Hold::default();
        let mut writer = Writer {
            opens,
            file,
            database: Some(database),
            owed: BTreeMap::new(),
            stored: stored.clone(),
            hold: hold.clone(),
        };
        let thread = std::thread::Builder::new().name("polity-sim-disk".into());
        let thread = thread.spawn(move || writer.run(&batches));
        let disk = Disk {
            sender: Some(sender),
            writer: Some(thread.map_err(DiskError::Thread)?),
            handed_in: 0,
            stored,
            hold,
        };
        Ok((disk, records))
    }

    /// Whether every change that was handed in is stored.
    pub(crate) fn is_settled(&self) -> bool {
        self.stored.load(Ordering::Acquire) == self.handed_in
    }

    /// Hands changes in, after all earlier ones.
    pub(crate) fn store(&mut self, changes: Vec<Change>) -> Receipt {
        let (receipt, told) = oneshot::channel();
        self.handed_in += 1;
        let batch = Batch {
            nth: self.handed_in,
            changes,
            receipt,
        };
        if let Some(sender) = &self.sender {
            self.hold.begin(self.handed_in);
            // If the writer has panicked, the batch is dropped with its receipt, so no caller is told that it
            // is stored.
            let _ = sender.send(batch);
        }
        told
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

struct Writer {
    opens: Box<Opens>,
    /// The file, to check that it still has a name.
    file: Option<File>,
    /// `None` after a failure, until the database is opened again.
    database: Option<Database>,
    /// The changes that are to be stored. After a failed transaction they are more than the present batches.
    owed: BTreeMap<RecordKey, Option<Vec<u8>>>,
    stored: Arc<AtomicU64>,
    hold: Hold,
}

impl Drop for Writer {
    /// From now on no caller is told a result, so none is waited for. That is so after a panic, too.
    fn drop(&mut self) {
        self.hold.end(u64::MAX);
    }
}

impl Writer {
    fn run(&mut self, batches: &Receiver<Batch>) {
        while let Ok(first) = batches.recv() {
            let mut waiting = vec![first];
            waiting.extend(batches.try_iter());
            self.take(waiting);
        }
    }

    /// Stores the changes of several calls in one transaction and tells their callers.
    fn take(&mut self, waiting: Vec<Batch>) {
        let mut receipts = Vec::new();
        let mut last = 0;
        for Batch {
            nth,
            changes,
            receipt,
        } in waiting
        {
            let changes = changes.into_iter().map(|change| (change.key, change.value));
            self.owed.extend(changes);
            receipts.push(receipt);
            last = nth;
        }
        let written = self.write();
        match &written {
            Ok(()) => {
                self.owed.clear();
                self.stored.store(last, Ordering::Release);
            }
            Err(_) => self.database = None,
        }
        for receipt in receipts {
            // A caller that gave up waiting dropped its receiver.
            let _ = receipt.send(written.clone());
        }
        self.hold.end(last);
    }

    fn write(&mut self) -> Result<(), NotKept> {
        self.check_name()?;
        let failed = |e: redb::Error| NotKept::Failed(Arc::new(e));
        if self.database.is_none() {
            self.database = Some((self.opens)().map_err(|e| failed(e.into()))?);
        }
        let database = self.database.as_ref().expect("opened above");
        commit(database, &self.owed).map_err(failed)?;
        self.check_name()
    }

    /// Checks that the file still has a name. Writing to a deleted file succeeds, but the changes would be
    /// lost.
    fn check_name(&self) -> Result<(), NotKept> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = self.file.as_ref().map(File::metadata).transpose();
        match metadata.map_err(|e| NotKept::Failed(Arc::new(redb::Error::Io(e))))? {
            Some(metadata) if metadata.nlink() == 0 => Err(NotKept::Deleted),
            _ => Ok(()),
        }
    }
}

fn load(database: &Database) -> Result<Vec<Record>, redb::Error> {
    let write = database.begin_write()?;
    write.open_table(RECORDS)?;
    write.commit()?;
    let records = database.begin_read()?.open_table(RECORDS)?;
    let mut all = Vec::new();
    for entry in records.iter()? {
        let (key, value) = entry?;
        let (table, key) = key.value();
        all.push((table.to_owned(), key.to_owned(), value.value().to_vec()));
    }
    Ok(all)
}

fn commit(database: &Database, changes: &BTreeMap<RecordKey, Option<Vec<u8>>>) -> Result<(), redb::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let write = database.begin_write()?;
    {
        let mut records = write.open_table(RECORDS)?;
        for (RecordKey { table, key }, value) in changes {
            let key = (*table, key.as_str());
            match value {
                Some(value) => records.insert(key, value.as_slice())?,
                None => records.remove(key)?,
            };
        }
    }
    write.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use futures::executor::block_on;

    use super::*;

    /// A disk in memory. A write is durable after the next sync. Syncs can be delayed, or fail.
    #[derive(Clone, Debug, Default)]
    struct Memory {
        bytes: Arc<Mutex<Vec<u8>>>,
        safe: Arc<Mutex<Vec<u8>>>,
        gate: Arc<(Mutex<Gate>, Condvar)>,
    }

    #[derive(Debug, Default)]
    struct Gate {
        is_shut: bool,
        /// Whether a sync waits at this point.
        is_awaited: bool,
        is_full: bool,
        syncs: usize,
    }

    impl Memory {
        fn set(&self, change: impl FnOnce(&mut Gate)) {
            change(&mut self.gate.0.lock().unwrap());
            self.gate.1.notify_all();
        }

        fn until_awaited(&self) {
            let gate = self.gate.0.lock().unwrap();
            drop(self.gate.1.wait_while(gate, |gate| !gate.is_awaited).unwrap());
        }

        fn disk(&self) -> (Disk, Vec<Record>) {
            let backend = self.clone();
            let opens = move || Builder::new().create_with_backend(backend.clone());
            Disk::over(Box::new(opens), None).unwrap()
        }

        /// The content of the disk after the machine lost its power now.
        fn after_power_loss(&self) -> Memory {
            let safe = self.safe.lock().unwrap().clone();
            Memory {
                bytes: Arc::new(Mutex::new(safe)),
                ..Memory::default()
            }
        }
    }

    impl redb::StorageBackend for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let at = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.bytes.lock().unwrap()[at..at + out.len()]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.bytes
                .lock()
                .unwrap()
                .resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            let mut gate = self.gate.0.lock().unwrap();
            gate.is_awaited = true;
            self.gate.1.notify_all();
            gate = self.gate.1.wait_while(gate, |gate| gate.is_shut).unwrap();
            gate.is_awaited = false;
            if gate.is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            gate.syncs += 1;
            *self.safe.lock().unwrap() = self.bytes.lock().unwrap().clone();
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let at = usize::try_from(offset).unwrap();
            self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn change(key: usize, value: &str) -> Vec<Change> {
        vec![Change {
            key: RecordKey {
                table: "t",
                key: key.to_string(),
            },
            value: Some(value.into()),
        }]
    }

    fn keys(records: &[Record]) -> Vec<&str> {
        records.iter().map(|(_, key, _)| key.as_str()).collect()
    }

    #[test]
    fn calls_that_wait_share_a_sync_and_none_is_told_before_it() {
        let memory = Memory::default();
        let (mut disk, _) = memory.disk();
        memory.set(|gate| gate.is_shut = true);
        let first = disk.store(change(0, "0"));
        memory.until_awaited();
        let mut others: Vec<Receipt> = (1..=50).map(|key| disk.store(change(key, "1"))).collect();
        assert!(!disk.is_settled());
        for receipt in &mut others {
            assert!(receipt.try_recv().unwrap().is_none(), "told before it is stored");
        }
        assert!(keys(&memory.after_power_loss().disk().1).is_empty());
        memory.set(|gate| (gate.is_shut, gate.syncs) = (false, 0));
        block_on(first).unwrap().unwrap();
        for receipt in others {
            block_on(receipt).unwrap().unwrap();
        }
        assert!(disk.is_settled());
        assert_eq!(memory.after_power_loss().disk().1.len(), 51);
        let syncs = memory.gate.0.lock().unwrap().syncs;
        assert!(syncs <= 4, "{syncs} syncs for two transactions");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_stands_still_while_a_caller_waits_for_the_disk() {
        let memory = Memory::default();
        let (mut disk, _) = memory.disk();
        for key in 0..3 {
            memory.set(|gate| gate.is_shut = true);
            let stored = tokio::time::timeout(Duration::from_secs(5), disk.store(change(key, "1")));
            let opener = std::thread::spawn({
                let memory = memory.clone();
                move || {
                    memory.until_awaited();
                    memory.set(|gate| gate.is_shut = false);
                }
            });
            let stored = stored.await.expect("the clock has not jumped");
            stored.unwrap().unwrap();
            opener.join().unwrap();
            let before = tokio::time::Instant::now();
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            assert!(before.elapsed() >= Duration::from_secs(3_600), "it jumps again");
        }
    }

    #[test]
    fn whoever_is_told_is_safe_from_a_loss_of_power_and_with_it_all_that_came_before() {
        let memory = Memory::default();
        let (mut disk, _) = memory.disk();
        for key in 0..20 {
            drop(disk.store(change(2 * key, "unwatched")));
            block_on(disk.store(change(2 * key + 1, "told")))
                .unwrap()
                .unwrap();
            let found = memory.after_power_loss().disk().1;
            assert_eq!(found.len(), 2 * key + 2);
        }
    }

    #[test]
    fn what_a_full_disk_refused_is_stored_with_the_next_call() {
        let memory = Memory::default();
        let (mut disk, _) = memory.disk();
        block_on(disk.store(change(1, "1"))).unwrap().unwrap();
        memory.set(|gate| gate.is_full = true);
        for _ in 0..3 {
            let refused = block_on(disk.store(change(2, "2"))).unwrap();
            assert!(matches!(refused, Err(NotKept::Failed(_))));
            assert!(!disk.is_settled());
        }
        memory.set(|gate| gate.is_full = false);
        block_on(disk.store(Vec::new())).unwrap().unwrap();
        assert!(disk.is_settled());
        drop(disk);
        assert_eq!(keys(&memory.disk().1), ["1", "2"]);
    }

    #[test]
    fn what_was_handed_in_is_stored_when_it_is_dropped_and_what_is_gone_is_gone() {
        let memory = Memory::default();
        let (mut disk, _) = memory.disk();
        drop(disk.store(change(1, "1")));
        drop(disk.store([change(2, "old"), change(2, "new")].concat()));
        let mut gone = change(1, "");
        gone[0].value = None;
        drop(disk.store(gone));
        drop(disk);
        let wanted = ("t".to_owned(), "2".to_owned(), b"new".to_vec());
        assert_eq!(memory.disk().1, [wanted]);
    }
}
