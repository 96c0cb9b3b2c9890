//! Tests of plugging ports in and out, which do not depend on the driver of the router.

use crate::thing::{self, Thing};
use polity_sdk::cloud::router::{Instance, Plugged, Port, plug};
use polity_sdk::prelude::*;
use polity_sdk::test::{World, describe};
use polity_sdk::{Code, Effect};
use serde_json::json;

fn port(n: u32) -> Port {
    Port {
        network: format!("net-{n}"),
        mac: format!("fa:16:3e:00:00:{n:02}"),
    }
}

/// Ports 1 and 2 are wanted of a VM that has 2 and 3.
async fn policy(cx: Context<Thing>) -> Result<Next, Failure> {
    let vm = Instance {
        id: "vm-1".to_owned(),
        status: "ACTIVE".to_owned(),
        created_at: 0,
        managed: true,
        ports: vec![port(2), port(3)],
        fault: None,
    };
    let plugged = plug(&cx, "r-1", &vm, &[port(1), port(2)]).await?;
    cx.note(format!("{plugged:?}"));
    Ok(Next::settled())
}

/// The result and the performed acts, if these requests fail.
fn plugged(fails: &'static [(&'static str, Code)]) -> (String, Vec<String>) {
    let mut world: World = thing::world();
    world.responds(move |request| {
        let line = describe(request);
        let failure = fails.iter().find(|(begin, _)| line.starts_with(begin));
        Some(match failure {
            Some((_, Code::DeadlineExceeded)) => Err(lost()),
            Some((_, code)) => Err(Failure::new(*code, "no")),
            None => Ok(json!({}).to_string()),
        })
    });
    let ended = world.pass(policy);
    let acts = ended
        .acts()
        .iter()
        .map(|act| act.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    (ended.notes.first().cloned().unwrap_or_default(), acts)
}

/// Nobody knows whether the request was performed.
fn lost() -> Failure {
    Failure {
        effect: Effect::Unknown,
        ..Failure::new(Code::DeadlineExceeded, "no")
    }
}

fn said(plugged: Plugged) -> String {
    format!("{plugged:?}")
}

#[test]
fn what_is_missing_is_plugged_in_and_what_is_too_much_out() {
    let changed = Plugged {
        changed: true,
        ..Plugged::default()
    };
    assert_eq!(
        plugged(&[]),
        (said(changed), vec!["port.attach".into(), "port.detach".into()])
    );
}

#[test]
fn a_port_of_another_router_is_never_attached() {
    let denied = Plugged {
        changed: true,
        denied: vec![(port(1), "PortOfAnotherRouter")],
        failure: None,
    };
    let (told, acts) = plugged(&[("port.get", Code::PermissionDenied)]);
    assert_eq!((told, acts), (said(denied.clone()), vec!["port.detach".into()]));
    let (told, _) = plugged(&[("port.attach", Code::PermissionDenied)]);
    assert_eq!(
        told,
        said(denied),
        "nor is it a failure if it was another's first"
    );
}

#[test]
fn what_is_so_already_is_no_change_and_no_failure() {
    let fails = &[
        ("port.attach", Code::AlreadyExists),
        ("port.detach", Code::NotFound),
    ];
    assert_eq!(plugged(fails).0, said(Plugged::default()));
}

#[test]
fn any_other_failure_is_told() {
    for fails in [
        &[("port.attach", Code::Internal)],
        &[("port.detach", Code::Internal)],
    ] {
        let told = Plugged {
            changed: true,
            denied: Vec::new(),
            failure: Some(Failure::new(Code::Internal, "no")),
        };
        assert_eq!(plugged(fails).0, said(told));
    }
}

#[test]
fn what_may_have_been_done_is_told_before_what_was_refused() {
    for fails in [
        &[
            ("port.attach", Code::DeadlineExceeded),
            ("port.detach", Code::Internal),
        ],
        &[
            ("port.attach", Code::Internal),
            ("port.detach", Code::DeadlineExceeded),
        ],
    ] {
        let told = Plugged {
            failure: Some(lost()),
            ..Plugged::default()
        };
        assert_eq!(plugged(fails).0, said(told));
    }
}

#[test]
fn a_port_that_cannot_be_looked_at_is_not_touched() {
    let (told, acts) = plugged(&[("port.get", Code::Unavailable)]);
    assert_eq!((told, acts), (String::new(), Vec::new()));
}
