//! What became of a clone whose answer was lost.
//!
//! A VM that is being cloned stands in its folder before it has options, so a VM of the right name without marks may
//! be the one. Its task, which has the key of the create, stands in the list of recent tasks from before the call is
//! answered until minutes after its end.

use polity_driver_sdk::prelude::*;

use crate::clone::{FOLDER, folder_path};
use crate::config::Config;
use crate::inventory::{self, Datacenter, by_instance_uuid, escaped};
use crate::marks::{EXTRA_CONFIG, KEY, Options};
use crate::moid::{Moid, VM};
use crate::properties::{self, Property};
use crate::recent::{self, Recent};
use crate::services::Services;
use crate::time::unix_ms;
use crate::{tasks, vm};

/// By how much the clocks of the vCenter and of the host may differ, in milliseconds.
const CLOCK_SKEW: u64 = 5 * 60 * 1_000;

/// How long a clone may take at most, in milliseconds. 48 minutes have been seen.
const LONGEST_CLONE: u64 = 2 * 60 * 60 * 1_000;

/// When a VM was created. A vCenter before 6.7 does not say.
const CREATED: Property = Property::text("config.createDate").since("6.7");

/// What a VM is to the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// What it made.
    Its,
    /// Something else.
    Another,
    /// Without marks: maybe what it made.
    Bare,
    /// Marked with its key, but for another object.
    Contradictory,
}

/// Finds what became of a clone.
pub(crate) async fn resolve(cx: &Context, entry: &Entry) -> Finding {
    if cx.operation() != "vm.clone" {
        let message = format!("{} creates nothing", cx.operation());
        return Finding::CannotTell(failure(Code::Unimplemented, message));
    }
    match look(cx, entry).await {
        Ok(Some(task)) => Finding::Found(json!({"task": task}).to_string()),
        Ok(None) => Finding::None,
        Err(failure) => Finding::CannotTell(failure),
    }
}

/// The id of the clone's task; `None` if every look was complete and there is nothing.
async fn look(cx: &Context, entry: &Entry) -> Result<Option<String>, Failure> {
    if entry.key.is_empty() {
        return Err(failure(Code::Internal, "the entry has no key"));
    }
    let config = Config::of(cx)?;
    let folder = folder_of(entry, &config)?;
    let services = Services::of(cx).await?;
    let vms = candidates(cx, &services, entry, &folder);
    let (vms, recent) = join(vms, recent::recent(cx, &services)).await;
    let recent = recent?;
    let its: Vec<&Recent> = recent
        .iter()
        .filter(|task| task.activation_id == entry.key)
        .collect();
    if let Some(task) = its.iter().find(|task| task.is_under_way()) {
        return Ok(Some(task.id.clone()));
    }
    let vms = vms?;
    if let Some((vm, _)) = vms.iter().find(|(_, is)| *is == Is::Its) {
        return Ok(Some(tasks::of_cloned(&vm.id)));
    }
    // It has ended. If it failed, its task says why; if it made a VM, that has gone, or was moved and renamed.
    if let Some(task) = its.first() {
        return Ok(Some(task.id.clone()));
    }
    for (vm, is) in &vms {
        match is {
            Is::Bare => be_sure(cx, &services, entry, vm, &recent).await?,
            Is::Contradictory => {
                return Err(unclear(vm, "has the key of the clone, but is another object's"));
            }
            Is::Its | Is::Another => {}
        }
    }
    Ok(None)
}

/// The path of the folder in which the VM would be. The place ends with the arguments that say where.
fn folder_of(entry: &Entry, config: &Config) -> Result<String, Failure> {
    let from_end = |nth: usize| {
        let at = entry.place.len().checked_sub(nth);
        at.map_or("", |at| entry.place[at].as_str())
    };
    let datacenter = Datacenter::of(from_end(2), config);
    folder_path(&datacenter, from_end(1), config)
}

/// The VM of this name in the folder, and the VMs with the owner's uid as their instance UUID, which is what policies
/// ask for. The second look finds a VM that was moved or renamed since.
async fn candidates(
    cx: &Context,
    services: &Services,
    entry: &Entry,
    folder: &str,
) -> Result<Vec<(Moid, Is)>, Failure> {
    let path = format!("{folder}/{}", escaped(&entry.intent));
    let paths = [folder, &path].map(|path| inventory::at(cx, services, path));
    let (at, by_uuid) = join(join_all(paths), by_instance_uuid(cx, services, cx.owner())).await;
    let at = at.into_iter().collect::<Result<Vec<Option<Moid>>, Failure>>()?;
    let mut vms = by_uuid?;
    if let Some(named) = at.get(1).cloned().flatten().filter(|found| found.kind == VM)
        && !vms.contains(&named)
    {
        vms.push(named);
    }
    // Without its folder, nothing says that the VM is not there. One that was found is one all the same.
    let folder_is_there = at
        .first()
        .cloned()
        .flatten()
        .is_some_and(|found| found.kind == FOLDER);
    let judged = join_all(vms.iter().map(|vm| judge(cx, services, entry, vm))).await;
    let judged = judged.into_iter().collect::<Result<Vec<Option<Is>>, Failure>>()?;
    let judged: Vec<(Moid, Is)> = vms
        .into_iter()
        .zip(judged)
        .filter_map(|(vm, is)| Some((vm, is?)))
        .collect();
    let is_found = judged.iter().any(|(_, is)| *is == Is::Its);
    match folder_is_there || is_found {
        true => Ok(judged),
        false => Err(failure(
            Code::FailedPrecondition,
            format!("there is no folder {folder:?} any more"),
        )),
    }
}

/// What a VM is to the clone; `None` if it has gone meanwhile.
async fn judge(cx: &Context, services: &Services, entry: &Entry, vm: &Moid) -> Result<Option<Is>, Failure> {
    match vm::look(cx, services, &vm.id, &[]).await {
        Ok(vm) => Ok(Some(compare(cx, entry, &vm.options))),
        Err(failure) if failure.code == Code::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn compare(cx: &Context, entry: &Entry, options: &Options) -> Is {
    match options.get(KEY) {
        Some(key) if key == entry.key && options.are_own(cx) => Is::Its,
        Some(key) if key == entry.key => Is::Contradictory,
        _ if options.are_unmarked() => Is::Bare,
        _ => Is::Another,
    }
}

/// Fails unless a VM without marks cannot be what the clone makes: it is older than the clone, or so old that no clone
/// takes as long, and none is under way.
async fn be_sure(
    cx: &Context,
    services: &Services,
    entry: &Entry,
    vm: &Moid,
    recent: &[Recent],
) -> Result<(), Failure> {
    if !services.says_when_created {
        return Err(unclear(
            vm,
            "has no marks, and this vCenter does not say when it was created",
        ));
    }
    let properties = [CREATED, EXTRA_CONFIG];
    let object = properties::read(cx, services, vm, &properties).await?;
    // Read once more with the date: the marks may have come meanwhile.
    let options = object.value(&EXTRA_CONFIG)?.map(Options::read);
    let created = unix_ms(object.text(&CREATED)?);
    let (Some(options), Some(created)) = (options, created) else {
        return Err(unclear(vm, "has no marks, and does not say when it was created"));
    };
    let is_older = created < entry.since.saturating_sub(CLOCK_SKEW);
    let is_settled = created < cx.now().saturating_sub(LONGEST_CLONE + CLOCK_SKEW);
    let is_idle = !recent.iter().any(Recent::may_make_a_vm);
    match options.are_unmarked() && (is_older || is_settled && is_idle) {
        true => Ok(()),
        false => Err(unclear(
            vm,
            "has the name of the clone and no marks: it may be the one, still being made",
        )),
    }
}

fn unclear(vm: &Moid, why: &str) -> Failure {
    failure(Code::FailedPrecondition, format!("VM {} {why}", vm.id))
}
