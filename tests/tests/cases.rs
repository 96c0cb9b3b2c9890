//! The tables of cases of the shipped policies, edge by edge, through the sandbox. A component must do the
//! same as the native function. The recordings of the cases take every edge of the specifications.

mod capa;
mod capv;
mod edges;
mod mcm;
mod orbiter;
mod retry;
mod rug;
mod size;

use std::sync::{Arc, Mutex};

use polity::recording::Recorder;
use polity_core::binding::{Limits, PolicyId};
use polity_core::contract as core;
use polity_core::key::{Key, PassId};
use polity_core::record::{Outcome, PassRecord, RoleRecord};
use polity_core::time::{Boot, Now, Unix};
use polity_sandbox::Policy;
use polity_sdk::contract as sdk;
use polity_tests::evidence::Notes;
use polity_tests::{convert, guests};

/// The steps of a lifecycle policy, as a component.
fn lifecycle(name: &str) -> impl FnMut(sdk::Pass) -> sdk::Step {
    let policy = guests::load(name);
    move |pass| convert::lifecycle_step(step(&policy, &convert::pass(pass)))
}

/// The steps of an identity policy, as a component.
fn identity(name: &str) -> impl FnMut(sdk::Pass) -> sdk::IdentityStep {
    let policy = guests::load(name);
    move |pass| convert::identity_step(step(&policy, &convert::pass(pass)))
}

/// What a retry policy decides, as a component.
fn decide(name: &str, request: sdk::RetryRequest) -> sdk::Wait {
    let (wait, _) = guests::load(name).decide(&convert::retry_request(request), &Limits::default());
    convert::wait_out(wait.expect("no fault"))
}

fn step(policy: &Policy, pass: &core::Pass) -> core::Step {
    policy.step(pass, &Limits::default()).outcome.expect("no fault")
}

fn same_manifest(name: &str, native: polity_sdk::Manifest) {
    assert_eq!(**guests::load(name).manifest(), native.into_contract());
}

/// Records what cases do, as the host records passes. In the end, each must have done what it noted.
struct Recorded(Arc<Mutex<Recorder>>, Notes);

impl Recorded {
    fn into(folder: &std::path::Path) -> Self {
        let recorder = Recorder::open(folder, true, "cases").expect("a folder to record into");
        Recorded(Arc::new(Mutex::new(recorder)), Notes::default())
    }

    fn lifecycle(&self, name: &str) -> impl FnMut(sdk::Pass) -> sdk::Step {
        let step = self.steps(name);
        move |pass| convert::lifecycle_step(step(pass))
    }

    fn identity(&self, name: &str) -> impl FnMut(sdk::Pass) -> sdk::IdentityStep {
        let step = self.steps(name);
        move |pass| convert::identity_step(step(pass))
    }

    fn steps(&self, name: &str) -> impl Fn(sdk::Pass) -> core::Step + use<> {
        let (policy, recorder, notes) = (guests::load(name), self.0.clone(), self.1.checker());
        let bytes = std::fs::read(guests::folder().join(format!("{}.wasm", name.replace('-', "_"))));
        let kept = recorder.lock().expect("a lock").policy(
            &policy.id().0,
            policy.manifest(),
            &bytes.expect("the policy's bytes"),
        );
        kept.expect("the policy is recorded");
        move |pass| {
            let pass = convert::pass(pass);
            let step = step(&policy, &pass);
            if let core::Step::Concluded { verdict, conclusion } = &step {
                let record = record(&policy, &pass, verdict, conclusion);
                notes.passed(&record);
                recorder
                    .lock()
                    .expect("a lock")
                    .pass(&record)
                    .expect("the pass is recorded");
            }
            step
        }
    }
}

/// A pass of one role, as the host would have recorded it.
fn record(
    policy: &Policy,
    pass: &core::Pass,
    verdict: &Option<core::Verdict>,
    conclusion: &core::Conclusion,
) -> PassRecord {
    let now = Now {
        boot: Boot(pass.now),
        unix: Unix(pass.now),
    };
    let outcome = match verdict {
        Some(core::Verdict::Denied) => Outcome::Denied,
        Some(core::Verdict::Released) => Outcome::Released,
        Some(core::Verdict::Granted(_)) | None => Outcome::Published,
    };
    let role = RoleRecord {
        role: policy.role(),
        policy: PolicyId(policy.id().0.clone()),
        config: pass.config.clone(),
        pending: pass.pending.clone(),
        steps: 1,
        fuel: 0,
        had: Vec::new(),
        journal: pass.journal.clone(),
        verdict: verdict.clone(),
        conclusion: Some(conclusion.clone()),
        fault: None,
    };
    PassRecord {
        binding: "".into(),
        pass: PassId(0),
        key: Key {
            binding: "cases".into(),
            namespace: None,
            name: "case".into(),
        },
        kind: policy.manifest().governs.first().cloned().unwrap_or(core::Kind {
            api_version: "v1".into(),
            kind: "Object".into(),
        }),
        uid: String::new(),
        started: now,
        queued: std::time::Duration::ZERO,
        ended: now,
        causes: pass.causes.clone(),
        attempt: pass.attempt,
        object: pass.object.clone(),
        roles: vec![role],
        outcome,
        writes: Vec::new(),
        next: Some(conclusion.next.clone()),
        retry: None,
        wait: None,
        shortened: false,
    }
}
