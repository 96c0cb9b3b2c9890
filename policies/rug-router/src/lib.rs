//! One virtual router, as Akanda's rug drives it: a state machine keeps one VM for the router alive and configured.
//!
//! Each pass executes one state and records the next, so after a crash or a restart the workflow goes on at the same
//! state, and no recorded state was never reached. `events` derives the events of the drawing from the object.
//! Each event becomes a letter in `status.queue`, and the state CALC_ACTION turns the letters
//! into one action.
//!
//! The flow is [`reconcile`]. A boot in doubt comes before everything else, then debugging, then new events, then the
//! state. Each state has a file of its own. [`edges`] lists the arrows of the drawing.

mod alive;
mod boot;
mod calc;
#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
mod config;
mod configure;
mod debug;
pub mod edges;
mod events;
mod letters;
mod machine;
mod object;
mod ports;
mod queue;
mod replug;
mod report;
mod stats;
mod stop;

use polity_sdk::prelude::*;

pub use config::Config;
pub use edges::manifest;
pub use letters::{Action, State, Vm};
pub use object::{NeutronStatus, Push, Router, RouterSpec, RouterStatus};
pub use queue::coalesce;

/// A pass of this policy.
pub type Cx = Context<Router, Config>;

/// Decides the next action for the router.
#[polity_sdk::policy(lifecycle)]
pub async fn reconcile(cx: Cx) -> Result<Next, Failure> {
    let mut router = cx.object_mut();
    Ok(match pass(&cx, &mut router).await {
        Ok(next) => {
            report::conclude(&cx, &mut router);
            next
        }
        // The state did not complete, so it is executed again.
        Err(failure) => {
            report::stumbled(&cx, &mut router, &failure);
            Next::failed(failure.retry_class(), failure)
        }
    })
}

async fn pass(cx: &Cx, router: &mut Router) -> Result<Next, Failure> {
    if let Some(next) = boot::resolve(cx, router)? {
        return Ok(next);
    }
    if debug::holds(cx, router) {
        return Ok(Next::settled());
    }
    let Some(state) = router.status.machine_state else {
        return alive::start(cx, router).await;
    };
    events::enter(cx, router).await;
    match state {
        State::CalcAction => Ok(calc::choose(cx, router)),
        State::Alive => alive::check(cx, router).await,
        State::CreateVm => boot::create(cx, router).await,
        State::CheckBoot => alive::check_boot(cx, router).await,
        State::Config => configure::configure(cx, router).await,
        State::ReplugVm => replug::replug(cx, router).await,
        State::StopVm => stop::stop(cx, router).await,
        State::RebuildVm => stop::rebuild(cx, router).await,
        State::Stats => stats::read(cx, router).await,
        State::ClearError => Ok(calc::clear_error(cx, router)),
        State::Exit => Ok(stop::exit(cx, router)),
    }
}
