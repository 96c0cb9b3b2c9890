//! Tests of boots. The machine is below a temporary root, and a script reboots it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::*;

/// The script takes a moment. This leaves enough time on a machine that compiles meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A clock that the test moves.
#[derive(Default)]
struct Hand {
    now: tokio::sync::watch::Sender<u64>,
    /// The requested sleeps, in order.
    slept: Mutex<Vec<u64>>,
}

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        *self.now.borrow()
    }

    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()> {
        self.slept.lock().expect("nobody panicked").push(millis);
        let (mut now, until) = (self.now.subscribe(), self.now_ms() + millis);
        Box::pin(async move {
            let _ = now.wait_for(|now| *now >= until).await;
        })
    }
}

/// A machine, and the folder that is its root.
struct Bench {
    root: TempDir,
    hand: Arc<Hand>,
    persisted: Arc<Mutex<Vec<String>>>,
    /// How often the state can still be stored.
    room: Arc<AtomicUsize>,
}

impl Bench {
    /// A machine in the boot `b-1`.
    fn new() -> Self {
        let bench = Bench {
            root: tempfile::tempdir().expect("a folder"),
            hand: Arc::default(),
            persisted: Arc::default(),
            room: Arc::new(AtomicUsize::new(usize::MAX)),
        };
        fs::create_dir_all(bench.path("proc/sys/kernel/random")).expect("a folder");
        bench.boots("b-1");
        bench
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn boots(&self, id: &str) {
        fs::write(self.path("proc/sys/kernel/random/boot_id"), format!("{id}\n")).expect("written");
    }

    /// A reboot command that runs this script.
    fn reboots_by(&self, script: &str) -> Option<Vec<String>> {
        let file = self.path("reboot");
        fs::write(&file, format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\n{script}\n")).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
        Some(vec![file.display().to_string()])
    }

    /// The machine as a new process of its agent opens it.
    fn machine(&self, reboot_command: Option<Vec<String>>, dry_run: bool) -> NodeCloud {
        let config = NodeConfig {
            node: "n".into(),
            seed: None,
            root: self.root.path().to_owned(),
            dry_run,
            reboot_command,
            kubelet_restart_command: None,
        };
        let (persisted, room) = (self.persisted.clone(), self.room.clone());
        let persist: Persist = Box::new(move |snapshot| {
            let took = room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            took.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
            persisted
                .lock()
                .expect("nobody panicked")
                .push(snapshot.to_owned());
            Ok(())
        });
        NodeCloud::open(config, None, Some(persist), self.hand.clone()).expect("it opens")
    }

    fn slept(&self) -> Vec<u64> {
        self.hand.slept.lock().expect("nobody panicked").clone()
    }

    /// The number of reboots that were begun.
    fn reboots(&self) -> usize {
        fs::read_to_string(self.path("reboots"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    async fn until_reboots(&self, count: usize) {
        let begin = Instant::now();
        while self.reboots() < count {
            assert!(begin.elapsed() < PATIENCE, "{} reboots", self.reboots());
            tokio::task::yield_now().await;
        }
        assert_eq!(self.reboots(), count);
    }
}

const COUNTS: &str = "echo rebooted >> reboots";

async fn ask(machine: &NodeCloud, operation: &str, mut arguments: Value) -> Answer {
    arguments["node"] = json!("n");
    let session = Session {
        cloud: super::ADAPTER.name.into(),
        handle: None,
        owner: "u".into(),
        tenant: "t".into(),
        tenant_queue: "".into(),
        namespace: None,
    };
    let request = CloudRequest {
        session,
        operation: operation.into(),
        arguments,
        key: None,
    };
    machine.perform(request).await
}

async fn reboot(machine: &NodeCloud, boot: &str) -> Answer {
    ask(machine, "node.reboot", json!({"bootId": boot})).await
}

fn is_refused(answer: Answer, words: &str) {
    let refused = answer.expect_err("it is refused");
    assert_eq!(refused.code, Code::FailedPrecondition);
    assert!(refused.message.contains(words), "{refused}");
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn a_boot_is_ended_once_ten_seconds_after_it_was_asked_for() {
    on_a_runtime(async {
        let bench = Bench::new();
        let machine = bench.machine(bench.reboots_by(COUNTS), false);
        reboot(&machine, "b-1").await.expect("it is scheduled");
        reboot(&machine, "b-1").await.expect("it is scheduled already");
        tokio::task::yield_now().await;
        assert_eq!(bench.slept(), [10_000]);
        bench.hand.now.send_replace(9_999);
        tokio::task::yield_now().await;
        assert_eq!(bench.reboots(), 0);
        bench.hand.now.send_replace(10_000);
        bench.until_reboots(1).await;

        // The machine is going down. A second request gets the same answer.
        reboot(&machine, "b-1").await.expect("it is under way");
        assert_eq!(bench.slept(), [10_000]);

        // The machine has booted, and its agent runs again.
        bench.boots("b-2");
        let machine = bench.machine(bench.reboots_by(COUNTS), false);
        let work = ask(&machine, "node.work", json!({})).await.expect("an answer");
        assert_eq!(work["bootId"], "b-2");
        is_refused(
            reboot(&machine, "b-1").await,
            "boot b-1 has ended: this is boot b-2",
        );
        assert_eq!((bench.slept(), bench.reboots()), (vec![10_000], 1));
    });
}

#[test]
fn another_boot_than_this_one_is_not_ended() {
    on_a_runtime(async {
        let bench = Bench::new();
        let machine = bench.machine(bench.reboots_by(COUNTS), false);
        for other in ["b-0", "b-2", ""] {
            is_refused(reboot(&machine, other).await, "this is boot b-1");
        }
        assert!(bench.slept().is_empty());
    });
}

#[test]
fn a_root_of_which_nobody_says_how_it_is_rebooted_is_not() {
    on_a_runtime(async {
        let bench = Bench::new();
        let machine = bench.machine(None, false);
        is_refused(reboot(&machine, "b-1").await, "is not the root of a machine");
        assert!(bench.slept().is_empty());
    });
}

#[test]
fn a_reboot_that_failed_may_be_asked_for_again() {
    on_a_runtime(async {
        let bench = Bench::new();
        let fails_once = format!("{COUNTS}\ntest $(wc -l < reboots) -gt 1");
        let machine = bench.machine(bench.reboots_by(&fails_once), false);
        reboot(&machine, "b-1").await.expect("it is scheduled");
        tokio::task::yield_now().await;
        bench.hand.now.send_replace(10_000);
        bench.until_reboots(1).await;
        let begin = Instant::now();
        while machine.machine.remembered().ending.is_some() {
            assert!(
                begin.elapsed() < PATIENCE,
                "the machine did not notice that the reboot failed"
            );
            tokio::task::yield_now().await;
        }
        reboot(&machine, "b-1").await.expect("it is scheduled again");
        tokio::task::yield_now().await;
        bench.hand.now.send_replace(20_000);
        bench.until_reboots(2).await;
    });
}

#[test]
fn what_is_only_said_is_neither_done_nor_remembered() {
    on_a_runtime(async {
        let bench = Bench::new();
        let machine = bench.machine(bench.reboots_by(COUNTS), true);
        ask(&machine, "node.initialized", json!({}))
            .await
            .expect("it is said");
        reboot(&machine, "b-1").await.expect("it is said");
        tokio::task::yield_now().await;
        bench.hand.now.send_replace(10_000);
        // The runtime has one thread for blocking work. If another task on it ends, the reboot's task has
        // ended before it.
        let blocking = tokio::task::spawn_blocking(|| ());
        tokio::task::yield_now().await;
        blocking.await.expect("it ends");
        assert_eq!(bench.reboots(), 0);
        assert_eq!(
            *bench.persisted.lock().expect("nobody panicked"),
            Vec::<String>::new()
        );
    });
}

#[test]
fn work_that_cannot_be_stored_does_not_begin_and_is_not_waited_for() {
    on_a_runtime(async {
        let bench = Bench::new();
        bench.room.store(0, Ordering::SeqCst);
        let machine = bench.machine(None, false);
        for _ in 0..2 {
            let ensured = ask(
                &machine,
                "node.ensure",
                json!({"versions": {"kubelet": "1.31.1"}}),
            )
            .await;
            let failure = ensured.expect_err("no room");
            assert!(failure.message.contains("cannot be stored"), "{failure}");
            assert_eq!(*machine.machine.remembered(), Memory::default());
        }
    });
}

#[test]
fn work_whose_end_cannot_be_stored_has_ended() {
    on_a_runtime(async {
        let bench = Bench::new();
        bench.room.store(1, Ordering::SeqCst);
        let machine = bench.machine(None, false);
        let ensured = ask(
            &machine,
            "node.ensure",
            json!({"versions": {"kubelet": "1.31.1"}}),
        )
        .await;
        ensured.expect("its begin is stored");
        let begin = Instant::now();
        let is_running = || {
            let work = machine.machine.remembered().work.clone();
            work.is_some_and(|work| work.state == WorkState::Running)
        };
        while is_running() {
            assert!(begin.elapsed() < PATIENCE, "the work never ends");
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.persisted.lock().expect("nobody panicked").len(), 1);
    });
}

#[test]
fn what_was_done_is_remembered_by_the_next_process() {
    on_a_runtime(async {
        let bench = Bench::new();
        let machine = bench.machine(None, false);
        ask(&machine, "node.initialized", json!({}))
            .await
            .expect("it is done");
        let persisted = bench.persisted.lock().expect("nobody panicked").clone();
        assert_eq!(persisted.len(), 1);
        let config = machine.machine.config.clone();
        let next = NodeCloud::open(config, Some(&persisted[0]), None, bench.hand.clone()).expect("it opens");
        assert!(next.machine.remembered().initialized);
    });
}
