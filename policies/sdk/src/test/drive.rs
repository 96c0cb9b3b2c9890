//! Drives a pass step by step, as the host does.

use crate::contract::{Act, Ask, Conclusion, Entry, Pass, Question, Request, Requests};

use super::facts::Answer;
use super::watch::{Poll, Watch};

/// The most steps of a pass, as in the host.
pub const STEPS: usize = 64;

/// A pass that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driven<C = Conclusion> {
    /// The requests of each step but the last.
    pub steps: Vec<Vec<Request>>,
    /// All requests with their answers, in the order of the journal.
    pub journal: Vec<Entry>,
    /// How it ended.
    pub conclusion: C,
}

/// Drives a pass to its end. `step` is the policy, natively or as a component. `answer` is the world.
///
/// # Panics
/// The policy breaks a rule of the journal, or asks for something that the world does not answer. The message
/// says which.
pub fn drive<C: PartialEq + std::fmt::Debug>(
    mut pass: Pass,
    mut step: impl FnMut(Pass) -> Result<C, Requests>,
    used: impl Fn(&C) -> &[u32],
    mut answer: impl FnMut(&Request) -> Option<Answer>,
) -> Driven<C> {
    let mut steps: Vec<Vec<Request>> = Vec::new();
    let mut rereads = Rereads::default();
    loop {
        assert!(
            steps.len() < STEPS,
            "the policy asks for ever: {STEPS} steps and no conclusion"
        );
        let outcome = step(pass.clone());
        let seen = Watch::last();
        rereads.check(&seen.polls);
        assert_eq!(
            outcome,
            step(pass.clone()),
            "two runs of the same step differ: a policy is a pure function"
        );
        let _ = Watch::last();
        let requests = match outcome {
            Err(requests) => listed(requests),
            Ok(conclusion) => {
                assert_nothing_dropped("was made and never awaited", &seen.dropped);
                assert_nothing_dropped("was awaited and then dropped without its answer", &seen.abandoned);
                assert_acts_used(&pass.journal, used(&conclusion));
                return Driven {
                    steps,
                    journal: pass.journal,
                    conclusion,
                };
            }
        };
        assert!(
            !requests.is_empty(),
            "stalled: the policy returned no requests and no conclusion"
        );
        for request in &requests {
            let Some(answer) = answer(request) else {
                panic!("no fact of this test answers {}", describe(request));
            };
            pass.journal.push(Entry {
                request: request.clone(),
                answer,
            });
        }
        steps.push(requests);
    }
}

/// The requests of a step in the form of the journal.
pub fn listed(requests: Requests) -> Vec<Request> {
    match requests {
        Requests::Asks(asks) => asks.into_iter().map(Request::Ask).collect(),
        Requests::Acts(acts) => acts.into_iter().map(Request::Act).collect(),
    }
}

fn assert_nothing_dropped(how: &str, requests: &[String]) {
    assert!(requests.is_empty(), "a request {how}: {}", requests.join("; "));
}

/// Checks that a conclusion rests on every act. If it does not, the host's fault is `journal-mismatch`.
fn assert_acts_used(journal: &[Entry], used: &[u32]) {
    for (index, entry) in (0u32..).zip(journal) {
        let act = matches!(entry.request, Request::Act(_));
        assert!(
            !act || used.contains(&index),
            "an act was performed and not used: {}",
            describe(&entry.request)
        );
    }
}

/// How often each ask was awaited in the steps so far.
///
/// Branches of a batch may ask the same question at the same time and share the answer. So a repeated ask is
/// a second look only if it comes up for the first time after an act that follows its answer.
#[derive(Default)]
struct Rereads(Vec<(Ask, usize)>);

impl Rereads {
    fn check(&mut self, polls: &[Poll]) {
        let mut last_act = None;
        let mut counts: Vec<(Ask, usize)> = Vec::new();
        for poll in polls {
            match poll {
                Poll::Act(_, answered) => last_act = last_act.max(*answered),
                Poll::Ask(ask, answered) => {
                    let nth = count(&mut counts, ask);
                    let known = self
                        .0
                        .iter()
                        .find(|(known, _)| known == ask)
                        .map_or(0, |(_, times)| *times);
                    if nth > known && answered.is_some() && last_act > *answered {
                        let question = describe(&Request::Ask(ask.clone()));
                        panic!(
                            "after an act the policy asks again {question}, and is answered from before the act: \
                             say ask_again(round, …)"
                        );
                    }
                }
            }
        }
        for (ask, times) in counts {
            match self.0.iter_mut().find(|(known, _)| *known == ask) {
                Some((_, known)) => *known = times.max(*known),
                None => self.0.push((ask, times)),
            }
        }
    }
}

fn count(counts: &mut Vec<(Ask, usize)>, ask: &Ask) -> usize {
    if let Some((_, times)) = counts.iter_mut().find(|(known, _)| known == ask) {
        *times += 1;
        return *times;
    }
    counts.push((ask.clone(), 1));
    1
}

/// A request in one line: `vm.get {"id":"vm-1"}`.
pub fn describe(request: &Request) -> String {
    match request {
        Request::Ask(Ask { round: 0, question }) => describe_question(question),
        Request::Ask(Ask { round, question }) => format!("{} (round {round})", describe_question(question)),
        Request::Act(act) => describe_act(act),
    }
}

fn describe_question(question: &Question) -> String {
    match question {
        Question::Object(query) => {
            let object = &query.object;
            let namespace = object
                .namespace
                .as_ref()
                .map(|ns| format!("{ns}/"))
                .unwrap_or_default();
            format!(
                "{} {namespace}{}{}",
                object.kind,
                object.name,
                latest(query.latest)
            )
        }
        Question::Objects(query) => {
            let part = |name: &str, value: &Option<String>| {
                value
                    .as_ref()
                    .map(|value| format!(" {name}={value}"))
                    .unwrap_or_default()
            };
            format!(
                "list {}{}{}{}{}",
                query.kind,
                part("namespace", &query.namespace),
                part("labels", &query.label_selector),
                part("fields", &query.field_selector),
                latest(query.latest)
            )
        }
        Question::Secret(secret) => {
            format!(
                "Secret {}/{}",
                secret.namespace.as_deref().unwrap_or(""),
                secret.name
            )
        }
        Question::Cloud(call) => format!("{} {}", call.operation, call.arguments),
        Question::Lock(name) => format!("lock {name}"),
        Question::Credential(plan) => format!("credential {plan}"),
        Question::Reachable(cluster) => format!("reachable {}", cluster.as_deref().unwrap_or("home")),
    }
}

fn latest(latest: bool) -> &'static str {
    if latest { " (latest)" } else { "" }
}

fn describe_act(act: &Act) -> String {
    match act {
        Act::Cloud(act) => format!("{} {}", act.operation, act.arguments),
        Act::Create(create) => format!("create {}", create.object),
        Act::Patch(patch) => format!(
            "patch {} {} {}",
            patch.object.kind, patch.object.name, patch.patch
        ),
        Act::Delete(delete) => format!("delete {} {}", delete.object.kind, delete.object.name),
        Act::Evict(eviction) => format!("evict {}", eviction.object.name),
        Act::Mint(mint) => format!("mint {} for {} ms", mint.kind, mint.ttl),
        Act::Revoke(token) => format!("revoke {token}"),
    }
}
