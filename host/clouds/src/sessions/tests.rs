//! Tests of sessions. The test passes the time.

use polity_core::catalogue::Credential;

use super::*;

const NOW: u64 = 1_000_000;

fn credential() -> Credential {
    Credential {
        secrets: vec!["chain[].secret".to_owned()],
        ..Credential::default()
    }
}

fn plan(name: &str) -> SessionPlan {
    SessionPlan::new(&credential(), json!({"chain": [{"role": {"arn": name}}]}))
}

fn of_secret(digest: &str, region: &str) -> SessionPlan {
    let secret = json!({"namespace": "system", "name": "keys", "digest": digest});
    SessionPlan::new(
        &credential(),
        json!({"region": region, "chain": [{"secret": secret}]}),
    )
}

fn opened(token: &str, expires: Option<u64>) -> Opened {
    Opened {
        token: token.to_owned(),
        attributes: json!({"principal": format!("arn:{token}"), "account": "1"}),
        expires,
    }
}

fn session(owner: &str, handle: &Value) -> Session {
    Session {
        cloud: "sim".to_owned(),
        handle: handle.as_str().map(str::to_owned),
        owner: owner.to_owned(),
        tenant: "t".to_owned(),
        tenant_queue: "".into(),
        namespace: Some("t".to_owned()),
    }
}

struct Bench {
    sessions: Sessions,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Bench {
            sessions: Sessions::new(7),
            now: NOW,
        }
    }

    fn put(&mut self, plan: &SessionPlan, owner: &str, opened: Opened) -> Value {
        self.sessions
            .put(self.now, plan, owner, opened, Redactor::default())
    }

    fn get(&mut self, plan: &SessionPlan, owner: &str) -> Option<Value> {
        self.sessions.get(self.now, plan, owner)
    }

    /// The token with which the adapter is called; `None` if the session is refused.
    fn enter(&mut self, owner: &str, handle: &Value) -> Option<String> {
        let entered = self.sessions.enter(self.now, &session(owner, handle));
        entered.ok().and_then(|session| session.handle)
    }
}

#[test]
fn equal_plans_share_one_session_whoever_asks() {
    let mut b = Bench::new();
    let first = b.put(&plan("a"), "u", opened("x", None));
    assert_eq!(
        (
            &first["attributes"]["principal"],
            &first["attributes"]["account"],
            &first["reused"]
        ),
        (&json!("arn:x"), &json!("1"), &json!(false))
    );
    let again = b.get(&plan("a"), "u").unwrap();
    assert_eq!(
        (&again["handle"], &again["reused"]),
        (&first["handle"], &json!(true))
    );
    let other = b.get(&plan("a"), "v").unwrap();
    assert_ne!(other["handle"], first["handle"]);
    assert_eq!(b.enter("u", &first["handle"]).as_deref(), Some("x"));
    assert_eq!(b.enter("v", &other["handle"]).as_deref(), Some("x"));
    assert_eq!(b.get(&plan("b"), "u"), None);
    assert_eq!(b.sessions.len(), 1);
}

#[test]
fn a_handle_is_of_no_use_to_another_object_and_cannot_be_made_up() {
    let mut b = Bench::new();
    let answer = b.put(&plan("a"), "u", opened("x", None));
    let handle = answer["handle"].as_str().unwrap();
    assert_eq!(b.enter("thief", &json!(handle)), None);
    let stranger = Sessions::new(8).put(NOW, &plan("a"), "u", opened("x", None), Redactor::default());
    assert_eq!(b.enter("u", &stranger["handle"]), None, "another seed");
    let (start, digits) = handle.rsplit_once('-').unwrap();
    let twisted: String = digits.chars().rev().collect();
    let other_serial = format!("session-2-{digits}");
    for made_up in [
        format!("{start}-{twisted}"),
        other_serial,
        "session-1-".into(),
        "x".into(),
        String::new(),
    ] {
        let refused = b.sessions.enter(NOW, &session("u", &json!(made_up))).unwrap_err();
        assert_eq!(refused.code, Code::Unauthenticated, "{made_up}");
    }
    assert_eq!(digits.len(), 32);
    let without = session("u", &Value::Null);
    assert_eq!(
        b.sessions.enter(NOW, &without).unwrap(),
        without,
        "a session without a handle needs no check"
    );
}

#[test]
fn a_handle_of_an_earlier_opening_of_a_cloud_enters_no_session_of_the_next() {
    let mut earlier = Bench::new();
    let before = earlier.put(&plan("role/a"), "u", opened("x", None));
    for same_plan in [true, false] {
        let mut next = Bench {
            sessions: Sessions::of_opening(7, 1),
            now: NOW,
        };
        let other = if same_plan { "role/a" } else { "role/b" };
        next.put(&plan(other), "v", opened("y", None));
        let late = next.sessions.enter(NOW, &session("u", &before["handle"]));
        assert_eq!(late.unwrap_err().code, Code::Unauthenticated, "{other}");
    }
}

#[test]
fn a_handle_belongs_to_the_plan_of_its_session() {
    let mut first = Bench::new();
    let mut second = Bench::new();
    let of_a = first.put(&plan("role/a"), "u", opened("x", None));
    let of_b = second.put(&plan("role/b"), "u", opened("y", None));
    assert_ne!(of_a["handle"], of_b["handle"]);
    assert_eq!(second.enter("u", &of_a["handle"]), None);
}

#[test]
fn a_session_that_is_about_to_end_is_not_handed_out_and_works_until_its_end() {
    let mut b = Bench::new();
    let first = b.put(&plan("a"), "u", opened("x", Some(NOW + 900_000)));
    b.now = NOW + 900_000 - MARGIN - 1;
    assert!(b.get(&plan("a"), "u").is_some());
    b.now += 1;
    assert_eq!(b.get(&plan("a"), "u"), None);
    let second = b.put(&plan("a"), "u", opened("y", Some(NOW + 9_000_000)));
    assert_eq!(b.get(&plan("a"), "u").unwrap()["handle"], second["handle"]);
    b.now = NOW + 899_999;
    assert_eq!(b.enter("u", &first["handle"]).as_deref(), Some("x"));
    b.now += 1;
    assert_eq!(b.enter("u", &first["handle"]), None);
    assert_eq!(b.enter("u", &second["handle"]).as_deref(), Some("y"));
}

#[test]
fn a_session_that_nobody_uses_is_dropped_and_one_in_use_is_not() {
    let mut b = Bench::new();
    b.put(&plan("a"), "u", opened("x", None));
    let used = b.put(&plan("b"), "u", opened("y", None));
    b.now += IDLE - 1;
    assert!(b.enter("u", &used["handle"]).is_some());
    b.now += 1;
    assert_eq!(b.get(&plan("a"), "u"), None);
    assert!(b.get(&plan("b"), "u").is_some());
}

#[test]
fn the_cache_is_bounded_and_what_was_used_longest_ago_goes_first() {
    let mut b = Bench::new();
    for nth in 0..MOST_SESSIONS {
        b.now += 1;
        b.put(&plan(&nth.to_string()), "u", opened("x", None));
    }
    b.now += 1;
    assert!(b.get(&plan("0"), "u").is_some());
    b.put(&plan("more"), "u", opened("x", None));
    assert_eq!(b.sessions.len(), MOST_SESSIONS);
    assert!(b.get(&plan("0"), "u").is_some() && b.get(&plan("more"), "u").is_some());
    assert_eq!(b.get(&plan("1"), "u"), None);
}

#[test]
fn a_session_that_the_cloud_refuses_is_dropped_and_no_other_failure_drops_one() {
    let mut b = Bench::new();
    let answer = b.put(&plan("a"), "u", opened("the token", None));
    let handle = answer["handle"].as_str();
    for code in [Code::PermissionDenied, Code::Unavailable, Code::NotFound] {
        let _ = b.sessions.answered(handle, Err(Failure::new(code, "")));
    }
    assert!(b.get(&plan("a"), "u").is_some());
    let refused = b.sessions.answered(
        handle,
        Err(Failure::new(Code::Unauthenticated, "the token expired")),
    );
    assert_eq!(refused.unwrap_err().message, "[redacted] expired");
    assert_eq!(b.get(&plan("a"), "u"), None);
    assert_eq!(b.enter("u", &answer["handle"]), None);
}

#[test]
fn a_secret_with_another_digest_drops_every_session_of_the_old_one() {
    let mut b = Bench::new();
    let old = b.put(&of_secret("d1", "here"), "u", opened("x", None));
    b.put(&of_secret("d1", "there"), "u", opened("y", None));
    b.put(&plan("role"), "u", opened("z", None));
    b.put(&of_secret("d2", "here"), "u", opened("new", None));
    assert_eq!(b.enter("u", &old["handle"]), None);
    assert_eq!(b.get(&of_secret("d1", "there"), "u"), None);
    assert!(b.get(&plan("role"), "u").is_some() && b.get(&of_secret("d2", "here"), "u").is_some());
}

#[test]
fn asking_with_a_made_up_digest_drops_nothing() {
    let mut b = Bench::new();
    b.put(&of_secret("d1", "here"), "u", opened("x", None));
    assert_eq!(b.get(&of_secret("made-up", "here"), "u"), None);
    assert!(b.get(&of_secret("d1", "here"), "u").is_some());
}

#[test]
fn of_two_that_were_opened_at_once_the_first_is_kept() {
    let mut b = Bench::new();
    let first = b.put(&plan("a"), "u", opened("x", None));
    let second = b.put(&plan("a"), "v", opened("y", None));
    assert_eq!(
        (&second["attributes"]["principal"], &second["reused"]),
        (&json!("arn:x"), &json!(true))
    );
    assert!(b.enter("u", &first["handle"]).is_some());
    assert_eq!(b.sessions.len(), 1);
}

#[test]
fn what_is_answered_under_a_session_is_scrubbed_of_what_it_was_made_of() {
    let mut b = Bench::new();
    let mut redactor = Redactor::default();
    redactor.learn("hunter22");
    let answer = b.sessions.put(NOW, &plan("a"), "u", opened("x", None), redactor);
    let said = b
        .sessions
        .redactor(answer["handle"].as_str())
        .answer(Err(Failure::new(Code::Internal, "key hunter22 is old")));
    assert_eq!(said.unwrap_err().message, "key [redacted] is old");
}

#[test]
fn each_session_that_is_not_kept_is_ended_once() {
    let mut b = Bench::new();
    b.put(&plan("a"), "u", opened("kept", None));
    b.put(&plan("a"), "v", opened("late", None));
    b.put(&of_secret("d1", "here"), "u", opened("old", None));
    assert_eq!(b.sessions.take_dropped(), ["late"]);
    b.put(&of_secret("d2", "here"), "u", opened("new", None));
    assert_eq!(b.sessions.take_dropped(), ["old"], "its Secret has changed");
    b.now += IDLE;
    b.get(&plan("b"), "u");
    let mut idle = b.sessions.take_dropped();
    idle.sort();
    assert_eq!(idle, ["kept", "new"]);
    assert_eq!(b.sessions.take_dropped(), [""; 0]);
}

#[test]
fn the_same_seed_and_calls_give_the_same_handles() {
    let run = || Bench::new().put(&plan("a"), "u", opened("x", None));
    assert_eq!(run(), run());
}
