//! The simulated cloud as the host sees it: by name, behind the gateway, on a clock.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use polity_core::call::{CloudRequest, Commit, PendingEntry, Session};
use polity_core::contract::{Answer, Code, Effect, Failure, Resolution};
use polity_core::time::Unix;
use serde_json::{Value, json};

use polity_clouds::{BoxFuture, Cloud, NoSecrets, OpenError, Opening, SecretRef, SecretResolver, Storage};
use polity_sim::{ADAPTER, SimClock, Simulated as _};

mod sessions;

/// A clock that moves only while somebody sleeps.
#[derive(Default)]
struct Clock(AtomicU64);

impl SimClock for Clock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()> {
        self.0.fetch_add(millis, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

/// A single Secret `boot` with the key `data`.
struct OneSecret;

const SECRET: &str = "#cloud-config\npassword: hunter22-and-more\n";

impl SecretResolver for OneSecret {
    fn resolve<'a>(
        &'a self,
        session: &'a Session,
        secret: &'a SecretRef,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        assert_eq!(session.owner, "u");
        let found = secret.name == "boot" && secret.key == "data";
        let missing = || Failure::new(Code::NotFound, format!("no Secret {:?}", secret.name));
        Box::pin(std::future::ready(
            found.then(|| SECRET.as_bytes().to_vec()).ok_or_else(missing),
        ))
    }
}

fn opening(configuration: Value) -> Opening {
    Opening {
        configuration: Some(configuration),
        seed: 7,
        clock: Arc::new(Clock(AtomicU64::new(1_000))),
        secrets: Arc::new(NoSecrets),
        storage: None,
    }
}

fn request(operation: &str, arguments: Value) -> CloudRequest {
    let session = Session {
        cloud: "sim".into(),
        handle: None,
        owner: "u".into(),
        tenant: "t".into(),
        tenant_queue: "".into(),
        namespace: Some("t".into()),
    };
    let key = (operation == "vm.clone").then(|| "key".to_owned());
    CloudRequest {
        session,
        operation: operation.to_owned(),
        arguments,
        key,
    }
}

fn clone_vm(more: Value) -> CloudRequest {
    let mut arguments = json!({
        "name": "m", "instanceUuid": "u", "template": "t", "cpus": 1, "coresPerSocket": 1, "memoryMiB": 1, "networks": [],
    });
    arguments
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    request("vm.clone", arguments)
}

fn sealed(name: &str) -> CloudRequest {
    clone_vm(json!({"userData": {"$secret": {"name": name, "key": "data"}}}))
}

fn open(opening: Opening) -> Result<Arc<dyn Cloud>, OpenError> {
    (ADAPTER.open)(opening)
}

/// Performs a request. A create is prepared and then committed, as the host does it.
fn perform(cloud: &Arc<dyn Cloud>, request: CloudRequest) -> Answer {
    if !["vm.clone", "machine.create"].contains(&&*request.operation) {
        return block_on(cloud.perform(request));
    }
    let key = None;
    let prepared = block_on(cloud.prepare(CloudRequest {
        key,
        ..request.clone()
    }))?;
    block_on(cloud.commit(Commit { request, prepared }))
}

/// An entry of the create `m` in the host's own session.
fn pending(operation: &str, since: u64) -> PendingEntry {
    PendingEntry {
        operation: operation.into(),
        service: "vm@1".into(),
        intent: "m".into(),
        key: "key".into(),
        stamp: 1,
        place: vec!["sim".into()],
        principal: "host".into(),
        since: Unix(since),
        waited: Duration::ZERO,
        resolved: None,
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|s| format!(": {}", error_chain(s)));
    format!("{error}{}", source.unwrap_or_default())
}

#[test]
fn a_configuration_is_checked_before_anything_is_opened_and_its_path_named() {
    let check = ADAPTER.check;
    assert!(check(None).is_ok() && check(Some(&json!({"lag": "2s"}))).is_ok());
    let error = check(Some(&json!({"faults": [{"then": "explode"}]}))).unwrap_err();
    assert!(matches!(error, OpenError::Configuration { .. }));
    assert!(
        error_chain(&error).contains("faults[0].then: "),
        "{}",
        error_chain(&error)
    );
    assert_eq!(
        open(opening(json!({"x": 1}))).err().unwrap().to_string(),
        error.to_string()
    );
}

#[test]
fn a_request_is_checked_before_the_cloud_sees_it() {
    let cloud = open(opening(json!({}))).unwrap();
    assert_eq!(
        perform(&cloud, request("no.such", json!({}))).unwrap_err().code,
        Code::Unimplemented
    );
    let failure = perform(&cloud, clone_vm(json!({"cpus": "two"}))).unwrap_err();
    assert_eq!(
        (failure.code, failure.effect),
        (Code::InvalidArgument, Effect::None)
    );
    assert!(failure.message.starts_with("vm.clone: cpus: "), "{failure}");
    assert!(
        cloud
            .simulation()
            .unwrap()
            .inspect(|sim, now| sim.vms(now))
            .is_empty()
    );
}

#[test]
fn answers_take_their_time_and_lost_ones_the_longest_there_is() {
    let clock = Arc::new(Clock::default());
    let configuration = json!({
        "answers": {"min": 70, "max": 70},
        "faults": [{"operation": "vm.clone", "then": "loseAnswer"}, {"operation": "vm.find", "then": "loseRequest"}],
    });
    let cloud = open(Opening {
        clock: clock.clone(),
        ..opening(configuration)
    })
    .unwrap();
    let _ = perform(&cloud, request("vm.get", json!({"id": "vm-1"})));
    assert_eq!(clock.now_ms(), 70);
    let failure = perform(&cloud, clone_vm(json!({}))).unwrap_err();
    assert_eq!(
        (failure.code, failure.effect),
        (Code::DeadlineExceeded, Effect::Unknown)
    );
    assert_eq!(clock.now_ms(), 5_070);
    let failure = perform(&cloud, request("vm.find", json!({"instanceUuid": "u"}))).unwrap_err();
    assert_eq!(
        (failure.code, failure.effect),
        (Code::DeadlineExceeded, Effect::None)
    );
    let entry = pending("vm.clone", 70);
    clock.0.store(100_000, Ordering::SeqCst);
    let session = clone_vm(json!({})).session;
    assert!(matches!(
        block_on(cloud.resolve(&session, &entry)),
        Resolution::Done(_)
    ));
}

#[test]
fn a_sealed_argument_is_resolved_and_never_seen_again() {
    let echo = json!({"fail": {"code": "internal", "message": "bad user data: {userData}"}});
    let configuration = json!({"faults": [{"operation": "vm.clone", "nth": 1, "then": echo}]});
    let file = Arc::new(OneFile::default());
    let opening = Opening {
        secrets: Arc::new(OneSecret),
        storage: Some(file.clone()),
        ..opening(configuration)
    };
    let cloud = open(opening).unwrap();
    let failure = perform(&cloud, sealed("boot")).unwrap_err();
    assert_eq!(failure.message, "bad user data: [redacted]");
    assert!(perform(&cloud, sealed("boot")).is_ok());
    let failure = perform(&cloud, sealed("other")).unwrap_err();
    assert_eq!(
        (failure.code, failure.effect),
        (Code::FailedPrecondition, Effect::None),
        "not-found would say that the VM does not exist"
    );
    let plain = perform(&cloud, clone_vm(json!({"userData": SECRET}))).unwrap_err();
    assert_eq!(plain.code, Code::InvalidArgument, "only a reference is taken");
    assert!(!plain.message.contains("hunter22"), "{plain}");
    drop(cloud);
    let stored = file.bytes();
    let has = |text: &str| stored.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(has("instanceUuid") && !has("hunter22"));
}

#[test]
fn a_late_call_is_stored_without_its_secrets() {
    let configuration = json!({"faults": [{"operation": "vm.clone", "then": {"happenLate": "9s"}}]});
    let cloud = open(Opening {
        secrets: Arc::new(OneSecret),
        ..opening(configuration)
    })
    .unwrap();
    assert_eq!(
        perform(&cloud, sealed("boot")).unwrap_err().code,
        Code::DeadlineExceeded
    );
    let snapshot = cloud.simulation().unwrap().inspect(|sim, _| sim.snapshot());
    assert!(
        snapshot.contains("arrive") && !snapshot.contains("hunter22"),
        "{snapshot}"
    );
}

/// A cloud that starts on the file of a killed one knows all that the killed one had answered.
#[test]
fn what_was_answered_is_known_to_the_next_process() {
    let file = Arc::new(OneFile::default());
    let on = |file: &Arc<OneFile>| Opening {
        storage: Some(file.clone()),
        ..opening(json!({}))
    };
    let cloud = open(on(&file)).unwrap();
    let task = perform(&cloud, clone_vm(json!({}))).unwrap();
    // A copy of the file at this moment. Nothing is written to it when the cloud ends.
    let killed = Arc::new(OneFile::of(&file.bytes()));
    let next = open(on(&killed)).unwrap();
    let known = perform(&next, request("task.get", json!({"id": task["task"]})));
    assert_eq!(
        known.unwrap()["state"],
        perform(&cloud, request("task.get", json!({"id": task["task"]}))).unwrap()["state"]
    );
}

#[test]
fn a_call_that_could_not_be_stored_is_in_doubt() {
    let file = Arc::new(OneFile::default());
    let cloud = open(Opening {
        storage: Some(file.clone()),
        ..opening(json!({}))
    })
    .unwrap();
    file.delete();
    let failure = perform(&cloud, clone_vm(json!({}))).unwrap_err();
    assert_eq!((failure.code, failure.effect), (Code::Internal, Effect::Unknown));
    assert!(failure.message.contains("deleted"), "{failure}");
    // No answer that rests on unsaved changes is given either.
    let seen = perform(&cloud, request("vm.get", json!({"id": "vm-1"}))).unwrap_err();
    assert_eq!(seen.code, Code::Internal);
}

#[test]
fn a_file_that_is_no_database_of_the_cloud_is_refused() {
    let refused = open(Opening {
        storage: Some(Arc::new(OneFile::of(b"{}"))),
        ..opening(json!({}))
    });
    let said = error_chain(&refused.err().unwrap());
    assert!(
        said.contains("opening the database of the simulated cloud"),
        "{said}"
    );
}

/// A file in a folder of its own.
struct OneFile(tempfile::NamedTempFile);

impl Default for OneFile {
    fn default() -> Self {
        Self::of(b"")
    }
}

impl OneFile {
    fn of(bytes: &[u8]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        OneFile(file)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.0.path()).unwrap()
    }

    fn delete(&self) {
        std::fs::remove_file(self.0.path()).unwrap();
    }
}

impl Storage for OneFile {
    fn read(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn replace(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn database(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(self.0.path())
    }
}
