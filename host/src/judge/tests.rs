use polity_core::binding::PolicyId;
use polity_core::contract::{
    CloudAct, CloudCall, Code, Event, EventType, Failure, ListQuery, Manifest, Next, RetryClass,
};
use serde_json::json;

use super::*;
use crate::edges::tests::pass;

/// What a policy decides, as a function of its journal.
type Script = dyn Fn(&Pass) -> Result<Step, Fault> + Send + Sync;

struct Scripted(Box<Script>);

impl Decides for Scripted {
    fn step(&self, pass: &Pass, _: &Limits) -> StepOutput {
        StepOutput {
            outcome: (self.0)(pass),
            fuel: 0,
        }
    }

    fn wait(&self, request: &RetryRequest, _: &Limits) -> Result<Wait, Fault> {
        Ok(Wait::After(1_000 * u64::from(request.attempt + 1)))
    }
}

/// What the policy of these tests does in a pass. A test changes one thing of it.
#[derive(Clone)]
struct Decision {
    /// The questions that it asks first.
    asks: Vec<Question>,
    /// The acts that it makes then, step by step.
    acts: Vec<Vec<Act>>,
    /// Whether it asks only after it has acted.
    acts_first: bool,
    conclusion: Conclusion,
    verdict: Option<Verdict>,
}

fn vm_get() -> Question {
    Question::Cloud(CloudCall {
        operation: "vm.get".into(),
        arguments: Json::from(r#"{"id":"vm-1"}"#).into(),
    })
}

fn clone_with(intent: &str, cpus: u32) -> Act {
    Act::Cloud(CloudAct {
        operation: "vm.clone".into(),
        arguments: Json::from(format!(r#"{{"name":"machine-01","hardware":{{"cpus":{cpus}}}}}"#)).into(),
        intent: Some(intent.into()),
    })
}

fn power_on() -> Act {
    Act::Cloud(CloudAct {
        operation: "vm.power-on".into(),
        arguments: Json::from("{}").into(),
        intent: None,
    })
}

fn patch(patch: &Value) -> Option<polity_core::contract::Document> {
    Some(Json::from(patch.to_string()).into())
}

fn status(phase: &str, reason: &str) -> Value {
    json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": "False", "reason": reason}]},
        "metadata": {"finalizers": ["example.org/x"]}})
}

fn decision() -> Decision {
    Decision {
        asks: vec![vm_get()],
        acts: vec![vec![clone_with("vm-machine-01", 2)], vec![power_on()]],
        acts_first: false,
        conclusion: Conclusion {
            patch: patch(&status("Creating", "Cloning")),
            events: vec![Event {
                kind: EventType::Normal,
                reason: "Cloned".into(),
                message: "machine-01 is vm-17".into(),
            }],
            notes: vec!["A-01".into(), "A-02".into()],
            next: Next::After(20_000),
            used: Vec::new(),
        },
        verdict: None,
    }
}

impl Decision {
    fn step(&self, pass: &Pass) -> Step {
        let answered = |request: &Request| pass.journal.iter().any(|entry| entry.request == *request);
        let ask = |question: &Question| {
            Request::Ask(Ask {
                round: 0,
                question: question.clone(),
            })
        };
        let asks = self.asks.iter().map(ask);
        let asks: Vec<Request> = asks.filter(|ask| !answered(ask)).collect();
        let steps = self.acts.iter().map(|acts| {
            let acts = acts.iter().cloned().map(Request::Act);
            acts.filter(|act| !answered(act)).collect::<Vec<Request>>()
        });
        let acts = steps
            .into_iter()
            .find(|acts| !acts.is_empty())
            .unwrap_or_default();
        let (first, then) = if self.acts_first {
            (acts, asks)
        } else {
            (asks, acts)
        };
        let wanted = if first.is_empty() { then } else { first };
        if !wanted.is_empty() {
            return Step::Pending(wanted.into_iter().collect());
        }
        let is_wanted = |entry: &Entry| match &entry.request {
            Request::Ask(ask) => self.asks.contains(&ask.question),
            Request::Act(act) => self.acts.iter().flatten().any(|wanted| wanted == act),
        };
        let entries = pass.journal.iter().enumerate();
        let used = entries
            .filter(|(_, entry)| is_wanted(entry))
            .map(|(index, _)| index as u32);
        Step::Concluded {
            verdict: self.verdict.clone(),
            conclusion: Conclusion {
                used: used.collect(),
                ..self.conclusion.clone()
            },
        }
    }
}

fn candidate(policy: impl Decides + 'static) -> Candidate {
    let manifest = json!({"name": "machines", "version": "1", "role": "lifecycle", "configSchema": {},
        "writes": ["status", "metadata.labels"], "finalizer": "example.org/x"});
    let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
    let loaded = LoadedPolicy {
        id: PolicyId("p".into()),
        manifest: manifest.into(),
        config: "{}".into(),
    };
    let spec = json!({"governs": {"apiVersion": "example.org/v1", "kind": "Machine"}, "policies": {}});
    let spec: BindingSpec = serde_json::from_value(spec).expect("a spec");
    Candidate::new(Arc::new(policy), loaded, &spec, false)
}

fn of(decision: Decision) -> Candidate {
    candidate(Scripted(Box::new(move |pass| Ok(decision.step(pass)))))
}

/// A pass of this decision as a host records it. Every request gets the same answer.
fn recorded(decision: &Decision) -> PassRecord {
    let mut record = pass(&[], "published", false);
    record.key.name = "machine-01".into();
    record.key.namespace = Some("team-a".into());
    record.object = Some(
        json!({"apiVersion": "example.org/v1", "kind": "Machine", "status": {"phase": "Pending"},
            "metadata": {"name": "machine-01", "namespace": "team-a", "finalizers": ["example.org/x"]}})
        .to_string()
        .into(),
    );
    let mut pass = Pass {
        object: record.object.clone(),
        now: 0,
        causes: Vec::new(),
        attempt: 0,
        config: "{}".into(),
        pending: Vec::new(),
        journal: Vec::new(),
    };
    let role = &mut record.roles[0];
    role.had.clear();
    loop {
        role.had.push(pass.journal.len() as u32);
        let answer = |request| Entry {
            request,
            answer: Ok(r#"{"metadata":{"name":"n"},"spec":{"a":1,"b":2}}"#.into()),
        };
        match decision.step(&pass) {
            Step::Pending(Requests::Asks(asks)) => pass
                .journal
                .extend(asks.into_iter().map(Request::Ask).map(answer)),
            Step::Pending(Requests::Acts(acts)) => pass
                .journal
                .extend(acts.into_iter().map(Request::Act).map(answer)),
            Step::Concluded { verdict, conclusion } => {
                role.journal = pass.journal;
                (role.verdict, role.conclusion) = (verdict, Some(conclusion));
                return record;
            }
        }
    }
}

fn judged(was: &Decision, now: Decision) -> Judged {
    let record = recorded(was);
    of(now).judge(&record, &record.roles[0], false)
}

/// The differences, each in a line.
fn lines(judged: Judged) -> Vec<String> {
    let (kind, differences) = match judged {
        Judged::Same(differences) => ("same", differences),
        Judged::Differs(differences) => ("differs", differences),
        Judged::WouldAsk(differences) => ("would ask", differences),
        Judged::Fault(differences) => ("fault", differences),
        Judged::Unfinished(why) => return vec![format!("unfinished: {why}")],
    };
    let shape = |seen: Option<difference::Seen>| seen.map_or("-".into(), |seen| seen.shape);
    let line = |one: Difference| {
        format!(
            "{kind} {:?} {}: {} → {}",
            one.what,
            one.of,
            shape(one.was),
            shape(one.now)
        )
    };
    differences.into_iter().map(line).collect()
}

/// A seeded change: what is changed, and the line that names it.
type Seeded = (&'static str, fn(&mut Decision), &'static [&'static str]);

fn object_query(projection: &[&str]) -> Question {
    Question::Object(ObjectQuery {
        object: serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "name": "n"}))
            .expect("a reference"),
        projection: projection.iter().map(|path| (*path).to_owned()).collect(),
        latest: false,
    })
}

const SEEDED: [Seeded; 23] = [
    ("nothing", |_| {}, &[]),
    (
        "a period",
        |it| it.conclusion.next = Next::After(60_000),
        &["differs Next : after 20s → after 1m"],
    ),
    (
        "a wait becomes a retry",
        |it| {
            it.conclusion.next = Next::Retry {
                class: RetryClass::Short,
                failure: Some(Failure::new(Code::Unavailable, "not now").of("vm.get")),
            };
        },
        &["differs Next : after 20s → retry, short (unavailable of vm.get)"],
    ),
    (
        "a phase",
        |it| it.conclusion.patch = patch(&status("Running", "Cloning")),
        &["differs Patch status.phase: Creating → Running"],
    ),
    (
        "a reason of a condition",
        |it| it.conclusion.patch = patch(&status("Creating", "Booting")),
        &["differs Patch status.conditions[Ready].reason: Cloning → Booting"],
    ),
    (
        "the status of a condition, from which the time of its transition follows",
        |it| {
            let mut changed = status("Creating", "Cloning");
            let condition = &mut changed["status"]["conditions"][0];
            condition["status"] = "True".into();
            condition["lastTransitionTime"] = "2026-01-01T00:00:01Z".into();
            it.conclusion.patch = patch(&changed);
        },
        &["differs Patch status.conditions[Ready].status: False → True"],
    ),
    (
        "a field is no longer written",
        |it| {
            let mut without = status("Creating", "Cloning");
            without["status"]["phase"].take();
            it.conclusion.patch = patch(&without);
        },
        &["differs Patch status.phase: Creating → -"],
    ),
    (
        "the same in other words",
        |it| {
            let mut also = status("Creating", "Cloning");
            also["status"]["never"] = Value::Null;
            it.conclusion.patch = patch(&also);
        },
        &[],
    ),
    (
        "a forgotten finalizer",
        |it| {
            let mut without = status("Creating", "Cloning");
            without["metadata"]["finalizers"] = json!([]);
            it.conclusion.patch = patch(&without);
        },
        &["differs Patch metadata.finalizers[]: example.org/x → -"],
    ),
    (
        "a label with the name of the object",
        |it| {
            let mut labelled = status("Creating", "Cloning");
            labelled["metadata"]["labels"] = json!({"of": "machine-01"});
            it.conclusion.patch = patch(&labelled);
        },
        &["differs Patch metadata.labels.of: - → $name"],
    ),
    (
        "a note less and another one more",
        |it| it.conclusion.notes = vec!["A-01".into(), "A-03".into()],
        &["differs Note A-02: said → -", "differs Note A-03: - → said"],
    ),
    (
        "a note twice",
        |it| it.conclusion.notes.push("A-01".into()),
        &["differs Note A-01: - → said"],
    ),
    (
        "the order of notes, which says nothing",
        |it| it.conclusion.notes.reverse(),
        &[],
    ),
    (
        "the number in an Event, which is another one each time",
        |it| it.conclusion.events[0].message = "machine-01 is vm-23".into(),
        &[],
    ),
    (
        "the reason of an Event",
        |it| it.conclusion.events[0].reason = "Made".into(),
        &[
            "differs Event Normal Cloned: $name is vm-*: said → -",
            "differs Event Normal Made: $name is vm-*: - → said",
        ],
    ),
    (
        "an intent",
        |it| it.acts[0] = vec![clone_with("machine-01-vm", 2)],
        &["differs Intent vm.clone: vm-$name → $name-vm"],
    ),
    (
        "an argument of an act",
        |it| it.acts[0] = vec![clone_with("vm-machine-01", 4)],
        &["differs ChangedAct vm.clone.hardware.cpus: 2 → 4"],
    ),
    (
        "an act that is not made any more",
        |it| drop(it.acts.pop()),
        &["differs NoLonger vm.power-on: {} → -"],
    ),
    (
        "one more act",
        |it| {
            it.acts.push(vec![Act::Mint(
                serde_json::from_value(json!({"kind": "token", "ttl": 1})).expect("a mint"),
            )]);
        },
        &[r#"differs WouldAct mint: - → {"kind":"token","ttl":1}"#],
    ),
    (
        "the order of acts",
        |it| it.acts.reverse(),
        &["differs Order vm.clone: - → vm.power-on"],
    ),
    (
        "both acts in one step, which come one after the other",
        |it| it.acts = vec![it.acts.concat()],
        &["differs Order vm.clone: - → vm.power-on"],
    ),
    (
        "an act before it looks",
        |it| it.acts_first = true,
        &[r#"differs Earlier vm.clone: - → {"hardware":{"cpus":2},"name":"$name"}"#],
    ),
    (
        "a question that nobody answered",
        |it| it.asks.push(Question::Objects(ListQuery::all(kind("Node")))),
        &["would ask WouldAsk all Node: - → asked"],
    ),
];

fn kind(kind: &str) -> polity_core::contract::Kind {
    polity_core::contract::Kind {
        api_version: "v1".into(),
        kind: kind.into(),
    }
}

#[test]
fn each_change_of_a_policy_is_named_and_nothing_else() {
    for (name, change, expected) in SEEDED {
        let mut changed = decision();
        change(&mut changed);
        assert_eq!(lines(judged(&decision(), changed)), expected, "{name}");
    }
}

#[test]
fn the_recorded_version_decides_the_same_to_the_byte() {
    let record = recorded(&decision());
    assert_eq!(
        of(decision()).judge(&record, &record.roles[0], true),
        Judged::Same(Vec::new())
    );
    let mut reversed = decision();
    reversed.conclusion.notes.reverse();
    let judged = of(reversed).judge(&record, &record.roles[0], true);
    assert_eq!(lines(judged), ["differs Bytes : - → -"]);
}

#[test]
fn questions_that_share_a_step_or_not_are_no_difference_and_fewer_fields_of_an_answer_are_known() {
    let asking = |asks: Vec<Question>| Decision { asks, ..decision() };
    let whole = asking(vec![vm_get(), object_query(&[])]);
    let narrower = asking(vec![vm_get(), object_query(&["spec.a"])]);
    assert_eq!(judged(&whole, narrower.clone()), Judged::Same(Vec::new()));
    let wider = lines(judged(&narrower, whole));
    assert_eq!(wider, ["would ask WouldAsk Node n: - → asked"]);
    // One less is read, which does not change what is decided.
    let fewer = lines(judged(&narrower, decision()));
    assert_eq!(fewer, ["same Reads Node n: read → -"]);
}

#[test]
fn what_breaks_the_contract_is_a_fault_and_what_did_so_before_is_the_same() {
    let trap = || Fault::new(FaultKind::Trap, "unreachable of machine-01");
    let traps = || candidate(Scripted(Box::new(move |_| Err(trap()))));
    let mut record = recorded(&Decision {
        acts: Vec::new(),
        ..decision()
    });
    let judge =
        |candidate: Candidate, record: &PassRecord| lines(candidate.judge(record, &record.roles[0], false));
    assert_eq!(
        judge(traps(), &record),
        ["fault Fault Trap: - → unreachable of $name"]
    );
    let forbidden = Decision {
        acts: Vec::new(),
        conclusion: Conclusion {
            patch: patch(&json!({"spec": {"a": 1}})),
            ..decision().conclusion
        },
        ..decision()
    };
    let said = judge(of(forbidden), &record);
    assert!(
        said.len() == 1 && said[0].starts_with("fault Fault BadOutput"),
        "{said:?}"
    );
    let asks_again = |_: &Pass| {
        let asks = vec![Ask {
            round: 0,
            question: vm_get(),
        }];
        Ok(Step::Pending(Requests::Asks(asks)))
    };
    let said = judge(candidate(Scripted(Box::new(asks_again))), &record);
    assert!(
        said.len() == 1 && said[0].starts_with("fault Fault Stalled"),
        "{said:?}"
    );
    (record.roles[0].conclusion, record.roles[0].fault) = (None, Some(trap()));
    assert_eq!(judge(traps(), &record), [""; 0]);
    assert_eq!(
        judge(
            of(Decision {
                acts: Vec::new(),
                ..decision()
            }),
            &record
        ),
        ["differs NoFault Trap: unreachable of $name → -"]
    );
}

#[test]
fn a_pass_without_a_conclusion_is_never_the_same() {
    let mut record = recorded(&decision());
    let judge = |record: &PassRecord| lines(of(decision()).judge(record, &record.roles[0], false));
    record.roles[0].conclusion = None;
    assert_eq!(
        judge(&record),
        ["unfinished: it ended before the policy concluded"]
    );
    let wall = Fault {
        deterministic: false,
        ..Fault::new(FaultKind::WallTime, "slow")
    };
    record.roles[0].fault = Some(wall);
    assert_eq!(
        judge(&record),
        ["unfinished: it ended with a fault that need not happen again"]
    );
    record.shorten();
    assert_eq!(judge(&record), ["unfinished: its long texts were not recorded"]);
}

fn retry(attempt: u32, answer: u64) -> RetryRecord {
    serde_json::from_value(json!({
        "policy": "p", "fault": null, "answer": {"after": answer},
        "request": {"apiVersion": "v1", "kind": "Machine", "origin": "lifecycle", "class": "short", "attempt": attempt,
            "failingFor": 0, "seed": 7, "config": "{}",
            "failure": {"code": "unavailable", "message": "no", "effect": "none", "operation": "vm.get"}},
    }))
    .expect("a retry")
}

#[test]
fn other_waits_are_grouped_by_what_failed_and_many_of_them_are_a_range() {
    let record = recorded(&decision());
    let mut groups = Groups::default();
    for answer in 0..20 {
        let judged = of(decision()).judge_retry(&record, &retry(0, 1_000 * answer));
        groups.add(&record, judged);
    }
    groups.add(&record, of(decision()).judge_retry(&record, &retry(1, 60_000)));
    assert_eq!((groups.same, groups.differs), (1, 20));
    let told = |(shared, group): (Shared, Group)| {
        let Shared { of, was, now, .. } = shared;
        (of, was.unwrap_or_default(), now.unwrap_or_default(), group.passes)
    };
    let all: Vec<_> = groups.groups().into_iter().map(told).collect();
    let of = |attempt| format!("lifecycle short (unavailable of vm.get), attempt {attempt}");
    let range = "various (0ms … 19s)".to_owned();
    assert_eq!(
        all,
        [
            (of(0), range, "1s".into(), 19),
            (of(1), "1m".into(), "2s".into(), 1)
        ]
    );
}

#[test]
fn groups_are_the_same_however_the_passes_are_divided() {
    let passes: Vec<PassRecord> = (0..7)
        .map(|number| {
            let mut record = recorded(&decision());
            record.pass = polity_core::key::PassId(number);
            record
        })
        .collect();
    let count = |passes: &[PassRecord]| {
        let mut groups = Groups::default();
        let mut changed = decision();
        changed.conclusion.next = Next::After(60_000);
        changed.conclusion.notes.pop();
        let candidate = of(changed);
        for record in passes {
            groups.add(record, candidate.judge(record, &record.roles[0], false));
        }
        groups
    };
    let whole = count(&passes);
    for at in 0..7 {
        let mut halves = count(&passes[at..]);
        halves.merge(count(&passes[..at]));
        assert_eq!(halves, whole);
    }
    let examples: Vec<u64> = whole.groups()[0]
        .1
        .examples
        .iter()
        .map(|example| example.pass.0)
        .collect();
    assert_eq!(examples, [0, 1, 2]);
}

#[test]
fn a_policy_that_always_asks_for_other_fields_of_an_answer_is_not_judged_for_ever() {
    let mut was = decision();
    was.asks = vec![object_query(&[])];
    let record = recorded(&was);
    let policy = Scripted(Box::new(|pass: &Pass| {
        let question = object_query(&[&format!("spec.field-{}", pass.journal.len())]);
        let asks = std::iter::once(Request::Ask(Ask { round: 0, question }));
        Ok(Step::Pending(asks.collect()))
    }));
    let judged = candidate(policy).judge(&record, &record.roles[0], false);
    assert_eq!(judged, Judged::Unfinished(TOO_LONG));
}

#[test]
fn a_policy_that_takes_more_fuel_than_a_pass_may_is_not_judged_to_the_end() {
    struct Hungry(Scripted);
    impl Decides for Hungry {
        fn step(&self, pass: &Pass, limits: &Limits) -> StepOutput {
            StepOutput {
                fuel: limits.pass_fuel,
                ..self.0.step(pass, limits)
            }
        }

        fn wait(&self, request: &RetryRequest, limits: &Limits) -> Result<Wait, Fault> {
            self.0.wait(request, limits)
        }
    }
    let record = recorded(&decision());
    assert!(record.roles[0].had.len() > 3);
    let policy = Scripted(Box::new(|pass: &Pass| Ok(decision().step(pass))));
    let judged = candidate(Hungry(policy)).judge(&record, &record.roles[0], false);
    assert_eq!(judged, Judged::Unfinished(TOO_LONG));
}

#[test]
fn a_fault_under_limits_that_were_cut_is_none_of_the_policy() {
    let record = recorded(&decision());
    for (kind, is_of_limit) in [
        (FaultKind::OutOfFuel, true),
        (FaultKind::OutOfMemory, true),
        (FaultKind::WallTime, true),
        (FaultKind::BadOutput, true),
        (FaultKind::Trap, false),
    ] {
        let policy = Scripted(Box::new(move |_| Err(Fault::new(kind, "it ends"))));
        let mut candidate = candidate(policy);
        let judged = candidate.judge(&record, &record.roles[0], false);
        assert!(matches!(judged, Judged::Fault(_)), "{judged:?}");
        candidate.is_cut = true;
        let judged = candidate.judge(&record, &record.roles[0], false);
        assert_eq!(judged == Judged::Unfinished(CUT), is_of_limit, "{judged:?}");
    }
}
