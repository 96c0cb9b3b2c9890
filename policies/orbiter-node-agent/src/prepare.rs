//! Prepares the machine before its Node exists (ORB-06, ORB-07): the packages, one reboot, and the report that it is
//! done.

use orbiter_api::{Because, Stop};
use polity_sdk::cloud::agent::{self, Seed, Working};

use crate::follow::{ENSURE_FAILED, reason};
use crate::{Cx, FAILED, is_own};

/// Installs the packages that were given with the agent, reboots once, and reports that the machine is prepared.
pub(crate) async fn prepare(cx: &Cx, name: &str, seed: &Seed, working: &Working) -> Result<(), Stop> {
    is_own(name, &working.node)?;
    let pause = cx.config().pause;
    if working.is_running() {
        cx.note("ORB-06");
        return Err(Stop::wait(pause, "Preparing", "packages are being installed"));
    }
    let installed = cx
        .ask(agent::versions(name, seed.versions.keys()))
        .await
        .because(FAILED)?;
    is_own(name, &installed.node)?;
    let done = working.work.as_ref().is_some_and(|work| work.boot_id.is_some());
    if installed.versions != seed.versions || !done {
        let failure = working.failure(&seed.versions);
        cx.act(agent::ensure(name, &seed.versions, None))
            .await
            .because(ENSURE_FAILED)?;
        cx.note("ORB-06");
        // The work starts again at once. The retry policy decides when it is checked.
        if let Some(failure) = failure {
            return Err(Stop::failed(reason(working, &seed.versions, &failure), failure));
        }
        return Err(Stop::wait(pause, "Preparing", "packages are being installed"));
    }
    if working.is_of_this_boot() {
        cx.act(agent::reboot(name, &working.boot_id))
            .await
            .because("RebootFailed")?;
        cx.note("ORB-06");
        return Err(Stop::wait(pause, "Rebooting", "the machine reboots"));
    }
    cx.note("ORB-32");
    cx.act(agent::initialized(name)).await.because(FAILED)?;
    cx.note("ORB-07");
    Err(Stop::wait(pause, "Prepared", "the machine is prepared"))
}
