//! Tests of sessions: who may assume which role, and what a session then sees.

use std::collections::BTreeMap;

use crate::harness::*;

const CONTROLLER: &str = "arn:aws:iam::111111111111:role/controller";
const TEAM: &str = "arn:aws:iam::222222222222:user/team";
const OUTER: &str = "arn:aws:iam::333333333333:role/outer";
const INNER: &str = "arn:aws:iam::444444444444:role/inner";

/// SHA-256 of `hunter22`.
const HUNTER22: &str = "20d2fe5e369db54ec7090639a9dc30ec4d608604936239d39e2de07fda09eb0b";

fn role(arn: &str, trusts: &[&str]) -> IamRole {
    IamRole {
        arn: arn.to_owned(),
        account: None,
        trusts: trusts.iter().map(|name| (*name).to_owned()).collect(),
        external_id: None,
        longest: Millis::seconds(7_200),
        web_identity: None,
    }
}

fn provider() -> IdentityProvider {
    let principal = |account: &str, arn: &str| Principal {
        account: account.to_owned(),
        arn: arn.to_owned(),
    };
    let web = WebIdentity {
        namespaces: vec!["team-*".to_owned()],
        audience: "sts".to_owned(),
    };
    IdentityProvider {
        host: Some(principal("111111111111", CONTROLLER)),
        access_keys: vec![AccessKey {
            id: "AKIA1".to_owned(),
            secret_sha256: None,
            account: "222222222222".to_owned(),
            arn: TEAM.to_owned(),
            expires: Some(Millis::seconds(5_000)),
        }],
        roles: vec![
            IamRole {
                external_id: Some("please".to_owned()),
                ..role(OUTER, &["arn:aws:iam::111111111111:*", TEAM])
            },
            role(INNER, &[OUTER]),
            IamRole {
                web_identity: Some(web),
                ..role("arn:aws:iam::5:role/pods", &[])
            },
            IamRole {
                account: Some("666666666666".to_owned()),
                ..role("arn:aws:iam::5:role/moved", &["*"])
            },
        ],
    }
}

fn bench(faults: Vec<FaultRule>) -> Bench {
    Bench::new(SimConfig {
        identity: provider(),
        ..with(faults)
    })
}

fn assume(arn: &str, seconds: u64) -> Value {
    json!({"role": {"arn": arn, "durationSeconds": seconds, "externalId": "please"}})
}

fn keys(id: &str, key: &str) -> (Value, BTreeMap<String, String>) {
    let link = json!({"secret": {"namespace": "system", "name": "keys", "digest": "d"}});
    let values = [("AccessKeyID", id), ("SecretAccessKey", key)];
    (
        link,
        values
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    )
}

impl Bench {
    fn become_by(
        &mut self,
        chain: impl IntoIterator<Item = Value>,
        secrets: impl IntoIterator<Item = BTreeMap<String, String>>,
    ) -> Result<polity_clouds::Opened, Failure> {
        let chain: Vec<Value> = chain.into_iter().collect();
        let request = polity_clouds::SessionRequest {
            tokens: Vec::new(),
            plan: json!({"chain": chain}),
            secrets: secrets.into_iter().collect(),
            owner: "u".to_owned(),
        };
        self.sim.open_session(self.now, &request).1
    }

    fn become_role(
        &mut self,
        chain: impl IntoIterator<Item = Value>,
    ) -> Result<polity_clouds::Opened, Failure> {
        self.become_by(chain, [])
    }

    /// A call with a session's token.
    fn under(&mut self, token: Option<&str>, owner: &str, operation: &str, arguments: Value) -> Answer {
        let mut request = request(owner, operation, arguments);
        request.session.handle = token.map(str::to_owned);
        self.sim.perform(self.now, &request).answer.expect("an answer")
    }
}

fn code<T: std::fmt::Debug>(opened: Result<T, Failure>) -> Code {
    opened.unwrap_err().code
}

/// An attribute of a session, as policies are told it.
fn said<'a>(opened: &'a polity_clouds::Opened, attribute: &str) -> &'a str {
    opened.attributes[attribute].as_str().unwrap_or_default()
}

#[test]
fn an_empty_chain_is_the_host_itself() {
    let mut b = bench(vec![]);
    let opened = b.become_role([]).unwrap();
    assert_eq!(
        (
            said(&opened, "account"),
            said(&opened, "principal"),
            opened.expires
        ),
        ("111111111111", CONTROLLER, None)
    );
    assert_eq!(
        code(Bench::new(plain()).become_role([])),
        Code::Unauthenticated,
        "where it has credentials"
    );
}

#[test]
fn a_role_is_assumed_from_the_host_and_the_next_one_from_that() {
    let mut b = bench(vec![]);
    let outer = b.become_role([assume(OUTER, 7_200)]).unwrap();
    assert_eq!(
        (said(&outer, "account"), said(&outer, "principal"), outer.expires),
        (
            "333333333333",
            "arn:aws:sts::333333333333:assumed-role/outer/polity",
            Some(START + 7_200_000)
        )
    );
    let inner = b
        .become_role([assume(OUTER, 7_200), assume(INNER, 3_600)])
        .unwrap();
    assert_eq!(
        (said(&inner, "account"), inner.expires),
        ("444444444444", Some(START + 3_600_000))
    );
    assert_eq!(
        code(b.become_role([assume(INNER, 3_600)])),
        Code::PermissionDenied,
        "the host is not trusted"
    );
    let backwards = [assume(INNER, 3_600), assume(OUTER, 3_600)];
    assert_eq!(code(b.become_role(backwards)), Code::PermissionDenied);
}

#[test]
fn a_role_is_refused_without_its_external_id_and_where_it_does_not_exist() {
    let mut b = bench(vec![]);
    for external in [json!(null), json!("no")] {
        let mut link = assume(OUTER, 900);
        link["role"]["externalId"] = external;
        assert_eq!(code(b.become_role([link])), Code::PermissionDenied);
    }
    assert_eq!(
        code(b.become_role([assume("arn:aws:iam::3:role/none", 900)])),
        Code::PermissionDenied
    );
}

#[test]
fn a_session_lasts_as_long_as_the_cloud_allows() {
    let mut b = bench(vec![]);
    for (seconds, allowed) in [(899, false), (900, true), (7_200, true), (7_201, false)] {
        assert_eq!(
            b.become_role([assume(OUTER, seconds)]).is_ok(),
            allowed,
            "{seconds}"
        );
    }
    for (seconds, allowed) in [(3_600, true), (3_601, false)] {
        let opened = b.become_role([assume(OUTER, 900), assume(INNER, seconds)]);
        assert_eq!(opened.is_ok(), allowed, "from a role: {seconds}");
    }
}

#[test]
fn the_keys_of_a_secret_are_checked_and_expire() {
    let mut b = bench(vec![]);
    let by = |b: &mut Bench, id: &str, key: &str| {
        let (link, values) = keys(id, key);
        b.become_by([link], [values])
    };
    let opened = by(&mut b, "AKIA1", "anything").unwrap();
    assert_eq!(
        (said(&opened, "account"), said(&opened, "principal")),
        ("222222222222", TEAM)
    );
    assert_eq!(opened.expires, Some(START + 5_000_000));
    assert_eq!(code(by(&mut b, "AKIA2", "anything")), Code::Unauthenticated);
    assert_eq!(code(by(&mut b, "AKIA1", "")), Code::Unauthenticated);
    let (link, values) = keys("AKIA1", "anything");
    assert_eq!(
        said(
            &b.become_by([link, assume(OUTER, 900)], [values]).unwrap(),
            "account"
        )
        .to_owned(),
        "333333333333"
    );
    b.now += 5_000_000;
    let expired = by(&mut b, "AKIA1", "anything").unwrap_err();
    assert!(expired.message.starts_with("ExpiredToken"), "{expired}");
}

#[test]
fn a_secret_access_key_is_known_by_its_digest() {
    let mut config = SimConfig {
        identity: provider(),
        ..plain()
    };
    config.identity.access_keys[0].secret_sha256 = Some(HUNTER22.to_owned());
    let mut b = Bench::new(config);
    let (link, values) = keys("AKIA1", "hunter22");
    assert!(b.become_by([link.clone()], [values]).is_ok());
    let (_, values) = keys("AKIA1", "hunter23");
    let refused = b.become_by([link], [values]).unwrap_err();
    assert!(refused.message.starts_with("SignatureDoesNotMatch"), "{refused}");
    assert!(!refused.message.contains("hunter"));
}

#[test]
fn a_role_is_assumed_with_a_token_of_a_namespace_that_it_trusts() {
    let mut b = bench(vec![]);
    let by = |b: &mut Bench, namespace: &str, audience: &str| {
        let link = json!({"webIdentity": {"namespace": namespace, "name": "builder", "arn": "arn:aws:iam::5:role/pods",
            "audiences": [audience], "expirationSeconds": 86_400}});
        b.become_role([link])
    };
    let opened = by(&mut b, "team-a", "sts").unwrap();
    assert_eq!(
        (said(&opened, "account"), opened.expires),
        ("5", Some(START + 3_600_000))
    );
    assert_eq!(code(by(&mut b, "other", "sts")), Code::PermissionDenied);
    assert_eq!(code(by(&mut b, "team-a", "else")), Code::PermissionDenied);
    let link = json!({"webIdentity": {"namespace": "team-a", "name": "builder", "arn": OUTER, "audiences": ["sts"], "expirationSeconds": 900}});
    assert_eq!(
        code(b.become_role([link])),
        Code::PermissionDenied,
        "a role that trusts no token"
    );
}

#[test]
fn assuming_a_role_by_token_fails_as_the_scenario_says() {
    let fail = Trouble::FailAfterwards { code: Code::Internal };
    let mut b = bench(vec![rule("sts.assume-role-with-web-identity", fail)]);
    let link = json!({"webIdentity": {"namespace": "team-a", "name": "builder", "arn": "arn:aws:iam::5:role/pods",
        "audiences": ["sts"], "expirationSeconds": 900}});
    assert_eq!(code(b.become_role([link])), Code::Internal);
    assert!(b.become_role([assume(OUTER, 900)]).is_ok(), "another call");
}

#[test]
fn only_the_first_link_is_no_role() {
    let mut b = bench(vec![]);
    let (link, values) = keys("AKIA1", "anything");
    assert_eq!(
        code(b.become_by([assume(OUTER, 900), link], [values])),
        Code::InvalidArgument
    );
}

#[test]
fn valid_credentials_can_lead_to_a_wrong_account() {
    let wrong = FaultRule {
        nth: Some(2),
        ..rule("sts.*", Trouble::LeadsTo("999999999999".to_owned()))
    };
    let mut b = bench(vec![wrong]);
    let accounts: Vec<String> = (0..3)
        .map(|_| said(&b.become_role([assume(OUTER, 900)]).unwrap(), "account").to_owned())
        .collect();
    assert_eq!(accounts, ["333333333333", "999999999999", "333333333333"]);
    let moved = b.become_role([assume("arn:aws:iam::5:role/moved", 900)]).unwrap();
    assert_eq!(said(&moved, "account"), "666666666666");
}

#[test]
fn each_call_of_a_chain_can_fail_be_lost_or_be_slow() {
    let fail = |operation: &str, arn: &str| FaultRule {
        vm: arn.to_owned(),
        ..rule(
            operation,
            Trouble::Fail {
                code: Code::ResourceExhausted,
                message: None,
                retry_after: Some(Millis(5)),
            },
        )
    };
    let chain = || [assume(OUTER, 900), assume(INNER, 900)];
    for (operation, arn) in [
        ("sts.assume-role", OUTER),
        ("sts.assume-role", INNER),
        ("sts.get-caller-identity", "*/inner/polity"),
    ] {
        let failure = bench(vec![fail(operation, arn)])
            .become_role(chain())
            .unwrap_err();
        assert_eq!(
            (failure.code, failure.retry_after),
            (Code::ResourceExhausted, Some(5)),
            "{operation} {arn}"
        );
    }
    assert!(
        bench(vec![fail("sts.assume-role", TEAM)])
            .become_role(chain())
            .is_ok(),
        "somebody else's"
    );
    for (trouble, expected) in [
        (Trouble::LoseAnswer, (LONGEST, Some(Code::DeadlineExceeded))),
        (Trouble::AnswerAfter(Millis(1_000)), (3_010, None)),
        (
            Trouble::AnswerAfter(Millis(2_000)),
            (LONGEST, Some(Code::DeadlineExceeded)),
        ),
    ] {
        let mut b = bench(vec![rule("sts.*", trouble)]);
        let request = polity_clouds::SessionRequest {
            tokens: Vec::new(),
            plan: json!({"chain": chain()}),
            secrets: Vec::new(),
            owner: "u".to_owned(),
        };
        let (after, opened) = b.sim.open_session(b.now, &request);
        assert_eq!((after, opened.err().map(|failure| failure.code)), expected);
    }
}

#[test]
fn in_an_outage_nobody_becomes_anybody() {
    for (calls, expected) in [
        (Unreachable::Refused, Code::Unavailable),
        (Unreachable::Silent, Code::DeadlineExceeded),
    ] {
        let mut b = bench(vec![]);
        let outage = Outage {
            from: Millis(0),
            until: Millis(1),
            calls,
        };
        b.reconfigure(|config| config.outages.push(outage));
        assert_eq!(code(b.become_role([])), expected);
        b.now += 1;
        assert!(b.become_role([]).is_ok());
    }
}

#[test]
fn a_session_ends_on_the_clock_and_survives_a_restart_until_then() {
    let mut b = bench(vec![]);
    let opened = b.become_role([assume(OUTER, 900)]).unwrap();
    assert!(b.sim.take_dirty());
    b.sim = Sim::restore(b.sim.config.clone(), &b.sim.snapshot()).unwrap();
    let token = Some(opened.token.as_str());
    let probe = |b: &mut Bench, token| b.under(token, "u", "pool.list", json!({}));
    b.now += 899_999;
    assert!(probe(&mut b, token).is_ok());
    assert_eq!(b.sim.session_tokens().count(), 1);
    b.now += 1;
    b.become_role([]).unwrap();
    assert_eq!(b.sim.session_tokens().count(), 1, "the old one is forgotten");
    assert_eq!(code(probe(&mut b, token)), Code::Unauthenticated);
    assert_eq!(code(probe(&mut b, Some("made-up"))), Code::Unauthenticated);
}

#[test]
fn what_is_in_one_account_is_invisible_from_another_even_to_its_owner() {
    let mut b = bench(vec![]);
    let here = b.become_role([assume(OUTER, 7_200)]).unwrap().token;
    let there = b
        .become_role([assume(OUTER, 7_200), assume(INNER, 3_600)])
        .unwrap()
        .token;
    let made = b
        .under(Some(&here), "u", "machine.create", json!({"name": "m"}))
        .unwrap();
    let task = b
        .under(Some(&here), "u", "vm.clone", clone_arguments("u", "v"))
        .unwrap();
    b.now += 11_000;
    let done = b
        .under(Some(&here), "u", "task.get", json!({"id": task["task"]}))
        .unwrap();
    let calls = [
        ("machine.status", json!({"name": "m"})),
        (
            "machine.status",
            json!({"name": "m", "providerID": made["providerID"]}),
        ),
        ("task.get", json!({"id": task["task"]})),
        ("vm.get", json!({"id": done["vm"]})),
        ("vm.find", json!({"instanceUuid": "u"})),
        ("vm.power-on", json!({"id": done["vm"]})),
        (
            "machine.delete",
            json!({"name": "m", "providerID": made["providerID"]}),
        ),
        ("machine.delete", json!({"name": "m"})),
    ];
    for (operation, arguments) in &calls {
        for stranger in [Some(there.as_str()), None] {
            let answer = b.under(stranger, "u", operation, arguments.clone());
            assert_eq!(code(answer), Code::NotFound, "{operation} as {stranger:?}");
        }
    }
    for (operation, arguments) in &calls[..calls.len() - 1] {
        assert!(
            b.under(Some(&here), "u", operation, arguments.clone()).is_ok(),
            "{operation}"
        );
    }
    let view = b.sim.vms(b.now).into_iter().next().unwrap();
    assert_eq!(view.account.as_deref(), Some("333333333333"));
}

#[test]
fn a_name_that_is_taken_in_one_account_is_free_in_another() {
    let mut b = bench(vec![]);
    let here = b.become_role([assume(OUTER, 7_200)]).unwrap().token;
    for token in [None, Some(here.as_str())] {
        b.under(token, "u", "machine.create", json!({"name": "m"}))
            .unwrap();
        b.under(token, "u", "vm.clone", clone_arguments("u", "v"))
            .unwrap();
    }
    let again = b.under(Some(&here), "u", "machine.create", json!({"name": "m"}));
    assert_eq!(code(again), Code::AlreadyExists);
}

#[test]
fn without_a_session_and_with_the_hosts_own_it_is_one_account() {
    let mut b = bench(vec![]);
    let own = b.become_role([]).unwrap().token;
    b.under(None, "u", "machine.create", json!({"name": "m"}))
        .unwrap();
    assert!(
        b.under(Some(&own), "u", "machine.status", json!({"name": "m"}))
            .is_ok()
    );
}

#[test]
fn a_create_in_doubt_is_settled_in_the_account_of_the_session() {
    let mut b = bench(vec![]);
    let here = b.become_role([assume(OUTER, 7_200)]).unwrap().token;
    let doubted = PendingEntry {
        operation: "machine.create".to_owned(),
        ..b.entry("m")
    };
    b.under(Some(&here), "u", "machine.create", json!({"name": "m"}))
        .unwrap();
    let resolve = |b: &mut Bench, token: Option<&str>| {
        let mut session = session("u");
        session.handle = token.map(str::to_owned);
        b.sim.resolve(b.now, &session, &doubted)
    };
    assert!(matches!(resolve(&mut b, Some(&here)), Resolution::Done(_)));
    assert!(resolve(&mut b, None).is_unknown());
    assert!(resolve(&mut b, Some("made-up")).is_unknown());
}

#[test]
fn a_provider_is_written_as_people_write() {
    let config = json!({"identity": {
        "host": {"account": "111111111111", "arn": CONTROLLER},
        "accessKeys": [{"id": "AKIA1", "account": "222222222222", "arn": TEAM, "expires": "5000s"}],
        "roles": [
            {"arn": OUTER, "trusts": ["arn:aws:iam::111111111111:*", TEAM], "externalId": "please", "longest": "2h"},
            {"arn": INNER, "trusts": [OUTER], "longest": "2h"},
            {"arn": "arn:aws:iam::5:role/pods", "longest": "2h",
                "webIdentity": {"namespaces": ["team-*"], "audience": "sts"}},
            {"arn": "arn:aws:iam::5:role/moved", "account": "666666666666", "trusts": ["*"], "longest": "2h"},
        ],
    }});
    assert_eq!(SimConfig::from_value(&config).unwrap().identity, provider());
    let wrong = json!({"identity": {"roles": [{"arn": 1}]}});
    assert_eq!(
        SimConfig::from_value(&wrong).unwrap_err().path,
        "identity.roles[0].arn"
    );
}
