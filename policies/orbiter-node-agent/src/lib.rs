//! The agent of one node, in the manner of CAOS Orbiter. The agent brings the packages of its own machine to the
//! versions that orbiter wants, and reboots the machine where a change needs a reboot.
//!
//! Before the Node exists, the agent prepares the machine: packages, then one reboot. From then on the agent follows
//! the annotations of its Node. The agent changes nothing until it is allowed to. Before a change it marks the node as
//! not ready, in a pass of its own, so that the change is never visible while the node is ready. The machine remembers
//! everything that must survive a reboot; the agent itself remembers nothing.
//!
//! The flow is [`reconcile`]. [`edges`] lists the arrows of the drawing.

#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
pub mod edges;
mod follow;
mod own;
mod prepare;

use orbiter_api::{Because, Stop};
use polity_sdk::cloud::agent::{self, Seed, Working};
use polity_sdk::prelude::*;

pub use config::Config;
pub use edges::manifest;
pub use own::OwnNode;

/// A pass of this policy.
pub type Cx = Context<OwnNode, Config>;

/// Decides the next action for the machine.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let end = work(&cx).await;
    let Some(_) = cx.object_if_present() else {
        return Ok(end.map_or_else(|stop| stop.next, |()| idle(&cx)));
    };
    let mut node = cx.object_mut();
    match end {
        Ok(()) => {
            node.say(cx.now(), "True", "Current", "");
            Ok(idle(&cx))
        }
        Err(stop) => {
            if stop.degraded {
                cx.event(EventType::Warning, stop.reason, &stop.message);
            }
            // A reported failure stays reported while the work is tried again.
            if stop.reason != follow::CHANGING || !node.has_failed() {
                node.say(cx.now(), "False", stop.reason, &stop.message);
            }
            Ok(stop.next)
        }
    }
}

/// Ends early where something is not as it should be.
async fn work(cx: &Cx) -> Result<(), Stop> {
    let name = name(cx)?;
    let (seed, working) = join!(cx.ask(agent::seed(&name)), cx.ask(agent::work(&name)));
    let (seed, working) = (seed.found().because(FAILED)?, working.because(FAILED)?);
    let Some(seed) = seed else {
        // Another party installed the agent, so only its Node says what is wanted.
        let seed = Seed {
            node: name.clone(),
            versions: Default::default(),
            initialized: true,
        };
        return go_on(cx, &name, &seed, &working).await;
    };
    is_own(&name, &seed.node)?;
    if seed.initialized {
        go_on(cx, &name, &seed, &working).await
    } else {
        prepare::prepare(cx, &name, &seed, &working).await
    }
}

async fn go_on(cx: &Cx, name: &str, seed: &Seed, working: &Working) -> Result<(), Stop> {
    is_own(name, &working.node)?;
    match cx.object_if_present() {
        None => Err(Stop::wait(
            cx.config().pause,
            "WaitingForNode",
            "the machine is prepared",
        )),
        Some(node) => {
            is_machine(node, working)?;
            follow::follow(cx, name, seed, working).await
        }
    }
}

/// The reason: the machine did not answer, or refused.
const FAILED: &str = "MachineFailed";

/// Nothing to do: the agent checks again after a while.
fn idle(cx: &Cx) -> Next {
    Next::settled_for(cx.config().pause)
}

/// The name of the agent's node.
fn name(cx: &Cx) -> Result<String, Stop> {
    let object = cx.object_if_present().map(|node| &node.metadata.name);
    match (&cx.config().node, object) {
        (Some(bound), Some(found)) if bound != found => {
            let message = format!("this is the agent of node {bound}, not of node {found}");
            Err(Stop::refuse("WrongNode", message))
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.clone()),
        (None, None) => Err(Stop::refuse(
            "WrongNode",
            "the binding names no node for this agent: set node in the configuration",
        )),
    }
}

/// Refuses an answer about another node.
fn is_own(name: &str, answered: &str) -> Result<(), Stop> {
    if name == answered {
        Ok(())
    } else {
        let message = format!("the machine answers for node {answered:.80}, and this is the agent of {name}");
        Err(Stop::refuse("WrongNode", message))
    }
}

/// Refuses a Node that another machine registered under the same name.
fn is_machine(node: &OwnNode, working: &Working) -> Result<(), Stop> {
    let registered = node
        .status
        .node_info
        .as_ref()
        .map(|info| info.machine_id.as_str());
    let registered = registered.filter(|id| !id.is_empty());
    match (registered, &working.machine_id) {
        (Some(registered), Some(own)) if registered != own => {
            let message = format!("the Node was registered by machine {registered:.80}, and this is {own}");
            Err(Stop::refuse("WrongNode", message))
        }
        _ => Ok(()),
    }
}
