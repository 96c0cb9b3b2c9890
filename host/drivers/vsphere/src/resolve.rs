//! Finds out the result of a clone whose answer was lost.
//!
//! A VM that is being cloned appears in its folder before it has options. So a VM with the right name and without marks
//! may be the VM of this clone. The task of the clone has the key of the create. It is in the list of recent tasks from
//! before the call is answered until some minutes after its end.

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

/// How much the clocks of the vCenter and of the host may differ, in milliseconds.
const CLOCK_SKEW: u64 = 5 * 60 * 1_000;

/// The longest time of a clone, in milliseconds. 48 minutes have been observed.
const LONGEST_CLONE: u64 = 2 * 60 * 60 * 1_000;

/// When a VM was created. A vCenter before 6.7 does not have this property.
const CREATED: Property = Property::text("config.createDate").since("6.7");

/// How a VM is related to the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// The clone made the VM.
    Its,
    /// The clone did not make the VM.
    Another,
    /// The VM has no marks: the clone may have made it.
    Bare,
    /// The VM has the key of the clone, but the owner mark of another object.
    Contradictory,
}

/// Finds out the result of a clone.
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

/// The id of the clone's task; `None` if every read was complete and there is neither a task nor a VM.
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
    // The task has ended. If it failed, it says why. If it made a VM, the VM was removed since, or was moved and renamed.
    if let Some(task) = its.first() {
        return Ok(Some(task.id.clone()));
    }
    for (vm, is) in &vms {
        match is {
            Is::Bare => be_sure(cx, &services, entry, vm, &recent).await?,
            Is::Contradictory => {
                return Err(unclear(
                    vm,
                    "has the key of the clone, but the owner mark of another object: correct the mark, or use polity resolve",
                ));
            }
            Is::Its | Is::Another => {}
        }
    }
    Ok(None)
}

/// The path of the folder in which the VM would be. The place of an entry ends with the arguments `datacenter` and `folder`.
fn folder_of(entry: &Entry, config: &Config) -> Result<String, Failure> {
    let from_end = |nth: usize| {
        let at = entry.place.len().checked_sub(nth);
        at.map_or("", |at| entry.place[at].as_str())
    };
    let datacenter = Datacenter::of(from_end(2), config);
    folder_path(&datacenter, from_end(1), config)
}

/// The VM of this name in the folder, and the VMs whose instance UUID is the owner's uid, as policies set it. The search by
/// UUID also finds a VM that was moved or renamed since.
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
    // If the folder is gone, it is not known whether the VM exists, unless the search by UUID has found it.
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
    if folder_is_there || is_found {
        Ok(judged)
    } else {
        Err(failure(
            Code::FailedPrecondition,
            format!(
                "the folder {folder:?} of the clone does not exist: the clone stays in doubt until the folder is back, or polity resolve ends it"
            ),
        ))
    }
}

/// How a VM is related to the clone; `None` if the VM was removed meanwhile.
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

/// Fails if a VM without marks may be the VM of the clone. It is another VM if it is older than the clone, or if it is older
/// than the longest clone takes and no clone is under way.
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
            "has the name of the clone and no marks, and this vCenter does not show when it was created: rename or remove it, or use polity resolve",
        ));
    }
    let properties = [CREATED, EXTRA_CONFIG];
    let object = properties::read(cx, services, vm, &properties).await?;
    // The marks are read again together with the date, because they may have been written meanwhile.
    let options = object.value(&EXTRA_CONFIG)?.map(Options::read);
    let created = unix_ms(object.text(&CREATED)?);
    let (Some(options), Some(created)) = (options, created) else {
        return Err(unclear(
            vm,
            "has the name of the clone and no marks, and vCenter does not show when it was created",
        ));
    };
    let is_older = created < entry.since.saturating_sub(CLOCK_SKEW);
    let is_settled = created < cx.now().saturating_sub(LONGEST_CLONE + CLOCK_SKEW);
    let is_idle = !recent.iter().any(Recent::may_make_a_vm);
    if options.are_unmarked() && (is_older || is_settled && is_idle) {
        Ok(())
    } else {
        Err(unclear(
            vm,
            "has the name of the clone and no marks: the clone may still be making it",
        ))
    }
}

fn unclear(vm: &Moid, why: &str) -> Failure {
    failure(Code::FailedPrecondition, format!("VM {} {why}", vm.id))
}
