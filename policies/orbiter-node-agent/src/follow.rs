//! Follows the Node's annotations (ORB-10 to ORB-12, ORB-20, ORB-21, ORB-25, ORB-26, ORB-32).

use orbiter_api::{Because, NodeMetadata, SOON, Stop, Versions, is_version};
use polity_sdk::cloud::agent::{self, Seed, Working};
use polity_sdk::prelude::*;

use crate::{Cx, FAILED, OwnNode, is_own};

/// The reason: a change is in progress.
pub(crate) const CHANGING: &str = "Changing";
/// The reason: a wanted version does not exist.
pub(crate) const NO_SUCH_VERSION: &str = "NoSuchVersion";
/// The reason: the packages could not be installed for another cause.
pub(crate) const ENSURE_FAILED: &str = "EnsureFailed";
/// The reasons with which a machine refuses work.
pub(crate) const REFUSALS: [&str; 6] = [
    "KubeadmMissing",
    "NotJoined",
    "VersionSkew",
    "PackageHeld",
    "DiskFull",
    "UpgradeFailed",
];

/// Gives the machine the versions that its Node wants.
pub(crate) async fn follow(cx: &Cx, name: &str, seed: &Seed, working: &Working) -> Result<(), Stop> {
    let mut node = cx.object_mut();
    let first = node.told().ready.is_none();
    if first {
        node.begin_with(&seed.versions);
    }
    let told = node.told();
    let pause = cx.config().pause;
    if working.is_running() {
        if told.ready != Some(false) {
            cx.note("ORB-20");
            node.set_ready(false);
        }
        return Err(Stop::wait(pause, CHANGING, "packages are being installed"));
    }
    let packages = agent::versions(name, told.desired.keys());
    let (installed, reboot) = join!(cx.ask(packages), cx.ask(agent::reboot_required(name)));
    let (installed, reboot) = (installed.because(FAILED)?, reboot.because(FAILED)?);
    is_own(name, &installed.node)?;
    is_own(name, &reboot.node)?;
    if first {
        cx.note("ORB-10");
        node.set_current(&told.desired, &installed.versions);
        let done = installed.versions == told.desired
            && working.failure(&told.desired).is_none()
            && !(reboot.required && working.is_of_this_boot());
        node.set_ready(done);
        if done {
            return Ok(());
        }
        // The agent's report was removed during a change. The change is not over because of that.
        cx.note("ORB-20");
        return Err(Stop::wait(SOON, CHANGING, "packages will be installed"));
    }
    let news = measure(cx, &mut node, &told, &installed.versions);
    // kubeadm may have failed after all packages were installed.
    if installed.versions != told.desired || working.failure(&told.desired).is_some() {
        return change(cx, &mut node, name, &told, working).await;
    }
    let reboots = reboot.required && working.is_of_this_boot();
    if told.ready == Some(true) {
        if news && reboots {
            cx.note("ORB-20");
            node.set_ready(false);
            return Err(Stop::wait(SOON, CHANGING, "the machine will reboot"));
        }
        cx.note("ORB-11");
        cx.note("ORB-12");
        return Ok(());
    }
    if reboots {
        permitted(cx, &node, &told)?;
        cx.act(agent::reboot(name, &working.boot_id))
            .await
            .because("RebootFailed")?;
        cx.note("ORB-25");
        return Err(Stop::wait(pause, "Rebooting", "the machine reboots"));
    }
    if working.work.is_some() && !working.is_of_this_boot() {
        cx.note("ORB-32");
    }
    cx.note("ORB-26");
    node.set_ready(true);
    Ok(())
}

/// Records the measured versions if they changed. While `ready` is true, the annotations never show an unwanted
/// version.
fn measure(cx: &Cx, node: &mut OwnNode, told: &NodeMetadata, installed: &Versions) -> bool {
    let known = |package: &String| told.current.get(package) == installed.get(package);
    let news = !told.desired.keys().all(known);
    if news {
        if told.ready != Some(false) && *installed != told.desired {
            cx.note("ORB-20");
            node.set_ready(false);
        }
        cx.note("ORB-21b");
        node.set_current(&told.desired, installed);
    }
    news
}

/// Reports that the agent is not ready, and begins to install in a later pass.
async fn change(
    cx: &Cx,
    node: &mut OwnNode,
    name: &str,
    told: &NodeMetadata,
    working: &Working,
) -> Result<(), Stop> {
    if let Some((package, version)) = told.desired.iter().find(|(_, version)| !is_version(version)) {
        let message = format!("{version:.80?} of {package} is not a version");
        let failure = Failure::new(Code::InvalidArgument, message);
        return Err(Stop::failed("InvalidVersion", failure));
    }
    let upgrade = node.upgrade().because("InvalidUpgrade")?;
    permitted(cx, node, told)?;
    if told.ready != Some(false) {
        if node.told().ready != Some(false) {
            cx.note("ORB-20");
            node.set_ready(false);
        }
        return Err(Stop::wait(SOON, CHANGING, "packages will be installed"));
    }
    let failure = working.failure(&told.desired);
    cx.act(agent::ensure(name, &told.desired, upgrade))
        .await
        .because(ENSURE_FAILED)?;
    cx.note("ORB-21a");
    let Some(failure) = failure else {
        return Err(Stop::wait(
            cx.config().pause,
            CHANGING,
            "packages are being installed",
        ));
    };
    // The work starts again at once. The retry policy decides when it is checked.
    Err(Stop::failed(reason(working, &told.desired, &failure), failure))
}

/// Why the work with these versions failed, in one word.
pub(crate) fn reason(working: &Working, versions: &Versions, failure: &Failure) -> &'static str {
    let told = working.refusal(versions);
    let known = REFUSALS.into_iter().find(|known| Some(*known) == told);
    known.unwrap_or(match failure.code {
        Code::NotFound => NO_SUCH_VERSION,
        _ => ENSURE_FAILED,
    })
}

/// Whether orbiter lets the agent change its machine, and nothing else prevents it.
fn permitted(cx: &Cx, node: &OwnNode, told: &NodeMetadata) -> Result<(), Stop> {
    let pause = cx.config().pause;
    if !told.changes_allowed {
        return Err(Stop::wait(
            pause,
            "WaitingForPermission",
            "a change is wanted and not allowed yet",
        ));
    }
    if cx.config().require_cordon && !node.spec.unschedulable {
        Err(Stop::wait(
            pause,
            "WaitingForCordon",
            "the node is not cordoned yet",
        ))
    } else {
        Ok(())
    }
}
