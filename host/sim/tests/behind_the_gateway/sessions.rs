//! Credential plans through the gateway: Secrets go in, handles come out.

use std::collections::BTreeMap;
use std::sync::Mutex;

use polity_core::contract::Document;

use super::*;
use polity_clouds::{PlanSecret, SecretContent};

const KEY: &str = "hunter22-and-more";
const ROLE: &str = "arn:aws:iam::333333333333:role/capa";

/// The present content of the Secret `system/keys`.
struct Keys {
    digest: Mutex<&'static str>,
    asked: AtomicU64,
}

impl SecretResolver for Keys {
    fn resolve<'a>(
        &'a self,
        session: &'a Session,
        secret: &'a SecretRef,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        NoSecrets.resolve(session, secret)
    }

    fn credentials<'a>(&'a self, secret: &'a PlanSecret) -> BoxFuture<'a, Result<SecretContent, Failure>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if (secret.namespace.as_str(), secret.name.as_str()) != ("system", "keys") {
            return NoSecrets.credentials(secret);
        }
        let values = [("AccessKeyID", "AKIAEXAMPLE1"), ("SecretAccessKey", KEY)];
        let values = values.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let content = SecretContent {
            digest: (*self.digest.lock().unwrap()).to_owned(),
            values: BTreeMap::from(values),
        };
        Box::pin(std::future::ready(Ok(content)))
    }
}

struct Bench {
    cloud: Arc<dyn Cloud>,
    clock: Arc<Clock>,
    keys: Arc<Keys>,
}

impl Bench {
    fn new(faults: Value) -> Self {
        let clock = Arc::new(Clock::default());
        let keys = Arc::new(Keys {
            digest: Mutex::new("d1"),
            asked: AtomicU64::new(0),
        });
        let user = "arn:aws:iam::222222222222:user/team";
        let configuration = json!({
            "lag": 0, "answers": {"min": 10, "max": 10}, "faults": faults,
            "accounts": [{"name": "prod", "principal": "arn:prod"}],
            "identity": {
                "accessKeys": [{"id": "AKIAEXAMPLE1", "account": "222222222222", "arn": user}],
                "roles": [{"arn": ROLE, "trusts": [user]}],
            },
        });
        let opening = Opening {
            clock: clock.clone(),
            secrets: keys.clone(),
            ..opening(configuration)
        };
        let cloud = open(opening).unwrap();
        Bench { cloud, clock, keys }
    }

    fn credential(&self, plan: &Value, owner: &str) -> Answer {
        let plan = Document::from(plan.to_string());
        block_on(self.cloud.credential(&plan, owner))
    }

    fn under(&self, credential: &Value, owner: &str, operation: &str, arguments: Value) -> Answer {
        let mut request = request(operation, arguments);
        request.session.handle = credential["handle"].as_str().map(str::to_owned);
        request.session.owner = owner.to_owned();
        request.key = (operation == "machine.create").then(|| "key".to_owned());
        perform(&self.cloud, request)
    }

    fn rotate(&self, digest: &'static str) {
        *self.keys.digest.lock().unwrap() = digest;
    }
}

/// A plan as capa-identity writes it.
fn plan(digest: &str) -> Value {
    let identity = |kind: &str| json!({"kind": kind, "name": "team", "uid": "1"});
    let secret = json!({"identity": identity("AWSClusterStaticIdentity"),
        "namespace": "system", "name": "keys", "digest": digest});
    let role = json!({"identity": identity("AWSClusterRoleIdentity"), "arn": ROLE, "durationSeconds": 900,
        "externalId": "x", "policyARNs": ["arn:p"]});
    json!({"region": "eu-central-1", "chain": [{"secret": secret}, {"role": role}]})
}

fn probe() -> (&'static str, Value) {
    ("pool.list", json!({}))
}

#[test]
fn a_plan_of_links_is_resolved_once_and_its_session_shared() {
    let b = Bench::new(json!([]));
    let first = b.credential(&plan("d1"), "u").unwrap();
    assert_eq!(
        (
            &first["attributes"]["account"],
            &first["attributes"]["principal"],
            &first["reused"]
        ),
        (
            &json!("333333333333"),
            &json!("arn:aws:sts::333333333333:assumed-role/capa/polity"),
            &json!(false)
        )
    );
    assert_eq!(b.clock.now_ms(), 10, "it takes its time");
    let other = b.credential(&plan("d1"), "v").unwrap();
    assert_eq!(b.clock.now_ms(), 10, "and a cached one takes none");
    assert_eq!(
        (&other["reused"], b.keys.asked.load(Ordering::SeqCst)),
        (&json!(true), 1)
    );
    let (operation, arguments) = probe();
    assert!(b.under(&first, "u", operation, arguments.clone()).is_ok());
    assert!(b.under(&other, "v", operation, arguments.clone()).is_ok());
    let stolen = b.under(&first, "v", operation, arguments).unwrap_err();
    assert_eq!(
        (stolen.code, stolen.effect),
        (Code::Unauthenticated, Effect::None)
    );
}

#[test]
fn of_many_that_ask_at_once_one_opens_the_session() {
    /// A clock that moves while others work.
    struct Busy(Clock);
    impl SimClock for Busy {
        fn now_ms(&self) -> u64 {
            self.0.now_ms()
        }
        fn sleep_ms(&self, millis: u64) -> BoxFuture<'_, ()> {
            let mut slept = false;
            Box::pin(std::future::poll_fn(move |context| {
                if slept {
                    return std::task::Poll::Ready(());
                }
                slept = true;
                drop(self.0.sleep_ms(millis));
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }))
        }
    }
    let opening = Opening {
        clock: Arc::new(Busy(Clock::default())),
        ..opening(json!({"accounts": [{"name": "prod", "principal": "arn:prod"}]}))
    };
    let cloud = open(opening).unwrap();
    let plan = Document::from(json!({"account": "prod"}).to_string());
    let owners: Vec<String> = (0..20).map(|nth| format!("u{nth}")).collect();
    let answers = owners.iter().map(|owner| cloud.credential(&plan, owner));
    let answers = block_on(futures::future::join_all(answers));
    let new = answers
        .iter()
        .filter(|answer| answer.as_ref().unwrap()["reused"] == false);
    assert_eq!(new.count(), 1);
    let sim = cloud.simulation().unwrap();
    assert_eq!(sim.inspect(|sim, _| sim.session_tokens().count()), 1);
}

#[test]
fn what_is_made_under_a_session_is_seen_and_settled_under_it_alone() {
    let b = Bench::new(json!([]));
    let credential = b.credential(&plan("d1"), "u").unwrap();
    b.under(&credential, "u", "machine.create", json!({"name": "m"}))
        .unwrap();
    let status = json!({"name": "m"});
    assert!(
        b.under(&credential, "u", "machine.status", status.clone())
            .is_ok()
    );
    let other = b.credential(&json!({"account": "prod"}), "u").unwrap();
    assert_eq!(
        b.under(&other, "u", "machine.status", status).unwrap_err().code,
        Code::NotFound
    );
    let entry = pending("machine.create", 0);
    b.clock.0.store(100_000, Ordering::SeqCst);
    let resolve = |handle: Option<String>| {
        let session = Session {
            handle,
            ..request("machine.status", json!({})).session
        };
        block_on(b.cloud.resolve(&session, &entry))
    };
    let handle = credential["handle"].as_str().map(str::to_owned);
    assert!(matches!(resolve(handle), Resolution::Done(_)));
    assert!(
        resolve(Some("session-1-made-up".to_owned())).is_unknown(),
        "nobody looked"
    );
}

#[test]
fn a_plan_whose_secret_changed_is_refused_and_the_next_one_drops_the_old_session() {
    let b = Bench::new(json!([]));
    let old = b.credential(&plan("d1"), "u").unwrap();
    b.rotate("d2");
    assert_eq!(
        b.credential(&plan("d3"), "u").unwrap_err().code,
        Code::Aborted,
        "a digest that nobody answered"
    );
    let (operation, arguments) = probe();
    assert!(b.under(&old, "u", operation, arguments.clone()).is_ok());
    let new = b.credential(&plan("d2"), "u").unwrap();
    assert_eq!(new["reused"], false);
    assert_eq!(
        b.under(&old, "u", operation, arguments.clone()).unwrap_err().code,
        Code::Unauthenticated
    );
    assert!(b.under(&new, "u", operation, arguments).is_ok());
    assert_eq!(b.credential(&plan("d1"), "u").unwrap_err().code, Code::Aborted);
}

#[test]
fn a_session_is_opened_anew_when_the_cloud_refused_it_or_it_ends() {
    let refuse = json!({"fail": {"code": "unauthenticated"}});
    let b = Bench::new(json!([{"operation": "pool.list", "nth": 1, "then": refuse}]));
    let first = b.credential(&plan("d1"), "u").unwrap();
    let (operation, arguments) = probe();
    assert_eq!(
        b.under(&first, "u", operation, arguments.clone())
            .unwrap_err()
            .code,
        Code::Unauthenticated
    );
    let second = b.credential(&plan("d1"), "u").unwrap();
    assert_eq!(second["reused"], false);
    assert!(b.under(&second, "u", operation, arguments.clone()).is_ok());
    b.clock.0.fetch_add(900_000, Ordering::SeqCst);
    assert_eq!(
        b.under(&second, "u", operation, arguments).unwrap_err().code,
        Code::Unauthenticated
    );
    assert_eq!(b.credential(&plan("d1"), "u").unwrap()["reused"], false);
}

#[test]
fn a_failure_is_not_kept_and_quotes_no_value() {
    let quote = json!({"fail": {"code": "permission-denied", "message": format!("InvalidClientTokenId AKIAEXAMPLE1 {KEY}")}});
    let b = Bench::new(json!([{"operation": "sts.get-caller-identity", "nth": 1, "then": quote}]));
    let failure = b.credential(&plan("d1"), "u").unwrap_err();
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (
            Code::PermissionDenied,
            "InvalidClientTokenId [redacted] [redacted]"
        )
    );
    assert_eq!(b.credential(&plan("d1"), "u").unwrap()["reused"], false);
}

#[test]
fn what_a_cloud_quotes_later_of_a_sessions_secret_is_scrubbed() {
    let quote = json!({"fail": {"code": "internal", "message": format!("signed with {KEY}")}});
    let b = Bench::new(json!([{"operation": "pool.list", "then": quote}]));
    let credential = b.credential(&plan("d1"), "u").unwrap();
    let (operation, arguments) = probe();
    let failure = b.under(&credential, "u", operation, arguments).unwrap_err();
    assert_eq!(failure.message, "signed with [redacted]");
    let snapshot = b.cloud.simulation().unwrap().inspect(|sim, _| sim.snapshot());
    assert!(!snapshot.contains(KEY));
}

#[test]
fn a_secret_that_cannot_be_had_opens_nothing() {
    let b = Bench::new(json!([]));
    let mut missing = plan("d1");
    missing["chain"][0]["secret"]["name"] = json!("other");
    assert_eq!(b.credential(&missing, "u").unwrap_err().code, Code::NotFound);
}

#[test]
fn a_plan_is_checked_before_anything_is_resolved() {
    let b = Bench::new(json!([]));
    let mut values = plan("d1");
    values["chain"][0]["secret"]["accessKey"] = json!("AKIAEXAMPLE1");
    let mut both = plan("d1");
    both["attributes"]["account"] = json!("prod");
    for wrong in [
        values,
        both,
        json!({"role": "prod"}),
        json!({"chain": [{}]}),
        json!({}),
    ] {
        assert_eq!(
            b.credential(&wrong, "u").unwrap_err().code,
            Code::InvalidArgument,
            "{wrong}"
        );
    }
    assert_eq!(b.keys.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_plain_plan_names_an_account() {
    let b = Bench::new(json!([]));
    let answer = b.credential(&json!({"account": "prod"}), "u").unwrap();
    assert_eq!(
        (
            &answer["attributes"]["account"],
            &answer["attributes"]["principal"]
        ),
        (&json!("prod"), &json!("arn:prod"))
    );
    assert_eq!(
        b.credential(&json!({"account": "x"}), "u").unwrap_err().code,
        Code::PermissionDenied
    );
}

#[test]
fn a_sealed_token_reaches_the_cloud_and_is_stored_by_nobody() {
    struct Boot;
    impl SecretResolver for Boot {
        fn resolve<'a>(
            &'a self,
            _: &'a Session,
            _: &'a SecretRef,
        ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
            Box::pin(std::future::ready(Ok(KEY.as_bytes().to_vec())))
        }
    }
    let echo = json!({"fail": {"code": "internal", "message": "no {bootstrapToken}"}});
    let configuration = json!({
        "machines": {"tokens": "minted", "boot": {"min": 0, "max": 0}, "join": {"min": 0, "max": 0}},
        "faults": [{"operation": "*", "nth": 2, "then": echo}],
    });
    let opening = Opening {
        secrets: Arc::new(Boot),
        ..opening(configuration)
    };
    let cloud = open(opening).unwrap();
    let sim = cloud.simulation().unwrap();
    sim.inspect(|sim, now| sim.admit_token(now, &json!(KEY), 60_000));
    let sealed = json!({"$secret": {"name": "boot", "key": "token"}});
    let make = |name: &str| {
        let mut request = request("machine.create", json!({"name": name, "bootstrapToken": sealed}));
        request.key = Some("key".to_owned());
        perform(&cloud, request)
    };
    make("m").unwrap();
    assert_eq!(make("n").unwrap_err().message, "no [redacted]");
    assert_eq!(
        sim.inspect(|sim, now| sim.nodes(now)).len(),
        1,
        "with the token's value, not its reference"
    );
    sim.inspect(|sim, now| sim.revoke_token(now, &json!(KEY)));
    make("o").unwrap();
    sim.inspect(|sim, now| {
        assert_eq!(sim.nodes(now + 1_000).len(), 1, "revoked");
        assert!(!sim.snapshot().contains(KEY));
    });
}

#[test]
fn what_one_principal_does_not_see_of_what_another_created_is_not_absent() {
    let b = Bench::new(json!([]));
    let entry = PendingEntry {
        service: "machine@1".into(),
        ..pending("machine.create", 0)
    };
    let elsewhere = PendingEntry {
        place: vec!["another cloud".into()],
        ..entry.clone()
    };
    let another = PendingEntry {
        principal: "333333333333".into(),
        ..entry.clone()
    };
    b.clock.0.store(10_000_000, Ordering::SeqCst);
    let session = request("machine.status", json!({})).session;
    let resolve = |entry: &PendingEntry| block_on(b.cloud.resolve(&session, entry));
    assert_eq!(resolve(&entry), Resolution::Absent);
    for entry in [elsewhere, another] {
        match resolve(&entry) {
            Resolution::Unknown(why) => assert!(why.contains("in sim by host"), "{why}"),
            said => panic!("{said:?}"),
        }
    }
}

#[test]
fn a_create_is_made_where_it_was_prepared_and_as_whom_or_not_at_all() {
    let b = Bench::new(json!([]));
    let mut request = request("machine.create", json!({"name": "m"}));
    let prepared = block_on(b.cloud.prepare(request.clone())).unwrap();
    assert_eq!(prepared.site.to_string(), "in sim by host");
    let there = b
        .cloud
        .simulation()
        .unwrap()
        .inspect(|sim, now| sim.vms(now).len());
    assert_eq!(there, 0, "reading changes nothing");
    let credential = b.credential(&plan("d1"), "u").unwrap();
    request.session.handle = credential["handle"].as_str().map(str::to_owned);
    request.key = Some("key".to_owned());
    let commit = Commit { request, prepared };
    let failure = block_on(b.cloud.commit(commit)).unwrap_err();
    assert_eq!((failure.code, failure.effect), (Code::Aborted, Effect::None));
    let there = b
        .cloud
        .simulation()
        .unwrap()
        .inspect(|sim, now| sim.vms(now).len());
    assert_eq!(there, 0);
}

#[test]
fn a_create_that_lacks_its_secret_is_not_prepared_and_none_is_performed_unprepared() {
    let b = Bench::new(json!([]));
    let sealed = json!({"$secret": {"name": "none", "key": "data"}});
    let lacking = request("machine.create", json!({"name": "m", "userData": sealed}));
    assert!(block_on(b.cloud.prepare(lacking)).is_err());
    let unprepared = request("machine.create", json!({"name": "m"}));
    let failure = block_on(b.cloud.perform(unprepared)).unwrap_err();
    assert_eq!((failure.code, failure.effect), (Code::Internal, Effect::None));
}
