//! Tests of what passes a gateway. The cloud behind it notes what it is asked.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use polity_core::catalogue::SecretRef;
use polity_core::time::Unix;
use serde_json::Value;

use super::*;
use crate::catalogue::{credential_plan, machine};
use crate::sealed::NoSecrets;
use crate::sessions::IDLE;

/// A clock that the test moves.
#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_ms(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Resolves each Secret, after this many milliseconds.
struct Slow(Arc<Hand>, u64);

impl SecretResolver for Slow {
    fn resolve<'a>(&'a self, _: &'a Session, _: &'a SecretRef) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        self.0.0.fetch_add(self.1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(b"a sealed value of 26 bytes".to_vec())))
    }
}

/// A cloud that notes how long the host has had its calls, and which sessions it ends.
struct Noting {
    catalogue: Arc<Catalogue>,
    clock: Arc<Hand>,
    waited: Mutex<Vec<Duration>>,
    ended: Mutex<Vec<String>>,
}

impl Noting {
    fn note(&self, waited: Duration) -> BoxFuture<'_, Answer> {
        self.waited.lock().unwrap().push(waited);
        Box::pin(std::future::ready(Ok(json!({}))))
    }
}

impl Cloud for Noting {
    fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn perform(&self, _: CloudRequest) -> BoxFuture<'_, Answer> {
        self.note(Duration::ZERO)
    }

    fn perform_after(&self, _: CloudRequest, waited: Duration) -> BoxFuture<'_, Answer> {
        self.note(waited)
    }

    fn commit_after(&self, _: Commit, waited: Duration) -> BoxFuture<'_, Answer> {
        self.note(waited)
    }

    /// Logs in first, which takes a second.
    fn site<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<Site, Failure>> {
        self.clock.0.fetch_add(1_000, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(site())))
    }

    fn resolve<'a>(&'a self, _: &'a Session, _: &'a PendingEntry) -> BoxFuture<'a, Resolution> {
        Box::pin(std::future::ready(Resolution::Absent))
    }

    fn open_session<'a>(&'a self, _: &'a SessionRequest) -> BoxFuture<'a, Result<Opened, Failure>> {
        let opened = Opened {
            token: "the token".to_owned(),
            attributes: json!({}),
            expires: None,
        };
        Box::pin(std::future::ready(Ok(opened)))
    }

    fn close_session(&self, token: &str) {
        self.ended.lock().unwrap().push(token.to_owned());
    }
}

fn site() -> Site {
    Site {
        place: vec!["here".to_owned()],
        principal: "me".to_owned(),
    }
}

fn gateway(secrets: impl FnOnce(Arc<Hand>) -> Arc<dyn SecretResolver>) -> Gateway<Noting> {
    let clock = Arc::new(Hand::default());
    let operations = machine::operations(Duration::from_secs(60)).into_iter();
    let catalogue = Catalogue {
        operations: operations
            .map(|(name, operation)| (name.to_owned(), operation))
            .collect(),
        credential: Some(credential_plan()),
        ..Catalogue::default()
    };
    let cloud = Noting {
        catalogue: Arc::new(catalogue),
        clock: clock.clone(),
        waited: Mutex::default(),
        ended: Mutex::default(),
    };
    Gateway::new(cloud, secrets(clock.clone()), clock, Sessions::new(7)).unwrap()
}

fn session(handle: Option<&Value>) -> Session {
    Session {
        cloud: "noting".to_owned(),
        handle: handle.and_then(Value::as_str).map(str::to_owned),
        owner: "u".to_owned(),
        tenant: "t".to_owned(),
        tenant_queue: "".into(),
        namespace: None,
    }
}

fn request(operation: &str, key: Option<&str>) -> CloudRequest {
    CloudRequest {
        session: session(None),
        operation: operation.to_owned(),
        arguments: json!({"name": "m", "userData": {"$secret": {"name": "s", "key": "k"}}}),
        key: key.map(str::to_owned),
    }
}

#[test]
fn the_time_to_unseal_and_to_log_in_counts_for_the_cloud() {
    let gateway = gateway(|clock| Arc::new(Slow(clock, 2_000)));
    block_on(gateway.perform(request(machine::DELETE, None))).unwrap();
    let prepared = Preparation {
        site: site(),
        ready: "[]".to_owned().into(),
    };
    let request = request(machine::CREATE, Some("key"));
    // The answer of this cloud is none of its catalogue.
    let _ = block_on(gateway.commit(Commit { request, prepared }));
    let waited = gateway.cloud.waited.lock().unwrap();
    assert_eq!(*waited, [2, 3].map(Duration::from_secs));
}

fn entry() -> PendingEntry {
    PendingEntry {
        operation: machine::CREATE.to_owned(),
        service: "machine@1".to_owned(),
        intent: "m".to_owned(),
        key: "key".to_owned(),
        stamp: 1,
        place: site().place,
        principal: site().principal,
        since: Unix(0),
        waited: Duration::ZERO,
        resolved: None,
    }
}

#[test]
fn whoever_comes_next_ends_the_sessions_that_nobody_uses_any_more() {
    let plan = Document::from(json!({"chain": []}).to_string());
    for next in ["site", "resolve", "credential"] {
        let gateway = gateway(|_| Arc::new(NoSecrets));
        let opened = block_on(gateway.credential(&plan, "u")).unwrap();
        block_on(gateway.site(&session(Some(&opened["handle"])))).unwrap();
        assert!(gateway.cloud.ended.lock().unwrap().is_empty());
        gateway.cloud.clock.0.fetch_add(IDLE, Ordering::SeqCst);
        match next {
            "site" => drop(block_on(gateway.site(&session(Some(&opened["handle"]))))),
            "resolve" => drop(block_on(Cloud::resolve(
                &gateway,
                &session(Some(&opened["handle"])),
                &entry(),
            ))),
            _ => drop(block_on(gateway.credential(&plan, "u"))),
        }
        assert_eq!(*gateway.cloud.ended.lock().unwrap(), ["the token"], "{next}");
    }
}

#[test]
fn a_session_that_opens_no_cloud_is_refused_before_any_call() {
    let gateway = gateway(|clock| Arc::new(Slow(clock, 0)));
    let none = || session(Some(&json!("none")));
    let under = |request: CloudRequest| CloudRequest {
        session: none(),
        ..request
    };
    let denied = Some(Code::PermissionDenied);
    let code = |answer: Result<Value, Failure>| answer.err().map(|failure| failure.code);
    let performed = block_on(gateway.perform(under(request(machine::DELETE, None))));
    assert_eq!(code(performed), denied);
    let prepared = block_on(gateway.prepare(under(request(machine::CREATE, None))));
    assert_eq!(prepared.err().map(|failure| failure.code), denied);
    let commit = Commit {
        request: under(request(machine::CREATE, Some("key"))),
        prepared: Preparation {
            site: site(),
            ready: "[]".to_owned().into(),
        },
    };
    assert_eq!(code(block_on(gateway.commit(commit))), denied);
    let there = block_on(Cloud::site(&gateway, &none()));
    assert_eq!(there.err().map(|failure| failure.code), denied);
    let resolution = block_on(Cloud::resolve(&gateway, &none(), &entry()));
    assert!(
        matches!(&resolution, Resolution::Unknown(why) if why.starts_with("permission-denied")),
        "{resolution:?}"
    );
    assert!(
        gateway.cloud.waited.lock().unwrap().is_empty(),
        "the cloud was called"
    );
}
