//! Node agents that prepare their machines (ORB-05, ORB-08).

use orbiter_api::{Because, Fleet, Member, Orb, Stop, TaskKind};
use polity_sdk::cloud::pool::{self, Agent};
use polity_sdk::prelude::*;

use crate::{AT_ONCE, Cx, task, version};

/// Installs agents where none runs, or where one of another release runs.
pub(crate) async fn install(cx: &Cx, orb: &mut Orb, fleet: &Fleet) -> Result<(), Stop> {
    let release = cx.config().agent_release.as_deref();
    let lacks = |member: &&Member| {
        let machine = &member.machine;
        machine.agent == Agent::Absent || release.is_some_and(|r| machine.agent_release.as_deref() != Some(r))
    };
    let lacking: Vec<&Member> = fleet.members.iter().filter(lacks).take(AT_ONCE).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let first = version::first(orb, cx.config(), fleet)?;
    let installations = lacking.iter().map(|member| {
        // A node keeps the versions that it has.
        let wanted = &member.metadata.desired;
        let versions = if wanted.is_empty() { &first } else { wanted };
        cx.act(pool::install_agent(&member.machine.id, versions, release))
    });
    let mut failed = None;
    for (member, submitted) in lacking.iter().zip(join_all(installations).await) {
        match submitted {
            Ok(id) => {
                cx.note("ORB-05");
                task::track(cx, orb, id, TaskKind::Install, &member.machine, None);
            }
            Err(failure) => _ = failed.get_or_insert(failure),
        }
    }
    failed.map_or(Ok(()), Err).because("InstallFailed")?;
    let message = format!("{} machines get their node agent", lacking.len());
    Err(Stop::wait(cx.config().pause, "InstallingAgents", message))
}

/// Waits until all machines are prepared.
pub(crate) fn wait(cx: &Cx, fleet: &Fleet) -> Result<(), Stop> {
    let waiting = fleet.members.iter().filter(|member| !member.is_initialized());
    let waiting: Vec<&str> = waiting
        .map(|member| member.machine.name.as_str())
        .take(10)
        .collect();
    if waiting.is_empty() {
        return Ok(());
    }
    cx.note("ORB-08");
    let message = format!("not prepared yet: {}", waiting.join(", "));
    Err(Stop::wait(cx.config().pause, "WaitingForMachines", message))
}
