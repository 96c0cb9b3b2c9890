//! Tests of the bootstrap tokens with which machines join.

use crate::harness::*;

fn sealed(name: &str) -> Value {
    json!({"$secret": {"name": name, "key": "token"}})
}

fn make(b: &mut Bench, owner: &str, token: Option<&str>) {
    let mut arguments = json!({"name": owner});
    if let Some(token) = token {
        arguments["bootstrapToken"] = sealed(token);
    }
    b.call(owner, "machine.create", arguments).unwrap();
}

fn joined(b: &mut Bench) -> Vec<String> {
    b.now += 30_000;
    b.sim.nodes(b.now).into_iter().map(|node| node.machine).collect()
}

/// The number of known tokens.
fn known(b: &mut Bench) -> usize {
    let snapshot: Value = serde_json::from_str(&b.sim.snapshot()).unwrap();
    let records = snapshot["records"].as_array().unwrap();
    records.iter().filter(|record| record[0] == "tokens").count()
}

fn strict() -> SimConfig {
    let mut config = plain();
    config.machines.tokens = Tokens::Minted;
    config
}

#[test]
fn a_token_that_was_revoked_lets_no_machine_join() {
    let mut b = Bench::new(plain());
    make(&mut b, "good", Some("a"));
    make(&mut b, "bad", Some("b"));
    make(&mut b, "none", None);
    b.sim.revoke_token(b.now, &sealed("b"));
    assert_eq!(joined(&mut b), ["good", "none"]);
}

#[test]
fn a_machine_that_has_joined_stays_when_its_token_is_revoked() {
    let mut b = Bench::new(plain());
    make(&mut b, "u", Some("a"));
    assert_eq!(joined(&mut b), ["u"]);
    for _ in 0..2 {
        b.sim.revoke_token(b.now, &sealed("a"));
    }
    assert!(b.node().ready);
}

#[test]
fn where_tokens_must_be_minted_no_other_lets_a_machine_join() {
    let mut b = Bench::new(strict());
    b.sim.admit_token(b.now, &sealed("minted"), 3_600_000);
    b.sim.admit_token(b.now, &sealed("short"), 30_000);
    make(&mut b, "minted", Some("minted"));
    make(&mut b, "short", Some("short"));
    make(&mut b, "made-up", Some("made-up"));
    make(&mut b, "none", None);
    assert_eq!(joined(&mut b), ["minted"]);
}

#[test]
fn a_minted_token_outlives_a_restart() {
    let mut b = Bench::new(strict());
    b.sim.admit_token(b.now, &sealed("minted"), 3_600_000);
    assert!(b.sim.take_dirty());
    b.sim = Sim::restore(strict(), &b.sim.snapshot()).unwrap();
    make(&mut b, "u", Some("minted"));
    assert_eq!(joined(&mut b), ["u"]);
}

#[test]
fn tokens_are_forgotten_with_their_machines_and_at_their_end() {
    let mut b = Bench::new(plain());
    b.sim.admit_token(b.now, &sealed("old"), 1_000);
    make(&mut b, "u", Some("a"));
    b.now += 2_000;
    b.sim.admit_token(b.now, &sealed("new"), 1_000);
    assert_eq!(known(&mut b), 2);
    b.call("u", "machine.delete", json!({"name": "u"})).unwrap();
    b.now += 700_000;
    b.sim.advance(b.now);
    assert_eq!(known(&mut b), 1);
}
