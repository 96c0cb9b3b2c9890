//! Reads VMs and their marks.

use polity_driver_sdk::prelude::*;

use crate::marks::{EXTRA_CONFIG, Options};
use crate::moid::{Moid, VM, is_id};
use crate::properties::{self, Object, Property, Set};
use crate::services::Services;

/// A VM that exists.
pub(crate) struct Vm {
    id: String,
    /// The properties that were read.
    pub(crate) object: Object,
    /// The options of the VM.
    pub(crate) options: Options,
}

impl Vm {
    fn new(object: Object) -> Result<Self, Failure> {
        let id = object.of.id.clone();
        let options = object.value(&EXTRA_CONFIG)?.map(Options::read);
        // vCenter shows no configuration while it creates a VM, or while it cannot reach the files or the host of the VM. In
        // both cases the VM exists.
        let options = options.ok_or_else(|| {
            let message = format!("vCenter does not show the configuration of VM {id} now");
            failure(Code::Unavailable, message)
        })?;
        Ok(Vm { id, object, options })
    }

    /// The id of the VM.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The id of the VM as [`Owned`], if the VM belongs to this operation's owner.
    pub(crate) fn owned(&self, cx: &Context) -> Result<Owned<'_>, Failure> {
        let stamp = self.options.are_own(cx).then(|| cx.owner());
        cx.owned(&self.id, stamp)
    }
}

/// The failure of an id without a VM.
pub(crate) fn no_vm(id: &str) -> Failure {
    failure(Code::NotFound, format!("vCenter has no VM {id:?}"))
}

/// Reads a VM of any owner.
pub(crate) async fn look(
    cx: &Context,
    services: &Services,
    id: &str,
    more: &[Property],
) -> Result<Vm, Failure> {
    let properties: Vec<Property> = [EXTRA_CONFIG].iter().chain(more).copied().collect();
    let of = referred(id)?;
    let object = properties::read(cx, services, &of, &properties).await;
    Vm::new(object.map_err(|failure| as_no_vm(failure, id))?)
}

/// Reads a VM of this operation's owner.
pub(crate) async fn own(
    cx: &Context,
    services: &Services,
    id: &str,
    more: &[Property],
) -> Result<Vm, Failure> {
    let vm = look(cx, services, id, more).await?;
    vm.owned(cx)?;
    Ok(vm)
}

/// Reads a VM of this operation's owner, and properties of the objects that one of its properties lists.
pub(crate) async fn own_through(
    cx: &Context,
    services: &Services,
    id: &str,
    more: &[Property],
    (through, listed): (&'static str, Set<'_>),
) -> Result<(Vm, Vec<Object>), Failure> {
    let properties: Vec<Property> = [EXTRA_CONFIG].iter().chain(more).copied().collect();
    let of = referred(id)?;
    let set = Set {
        kind: VM,
        properties: &properties,
    };
    let objects = properties::read_through(cx, services, &of, through, &[set, listed]).await?;
    let (mut vms, listed): (Vec<Object>, Vec<Object>) =
        objects.into_iter().partition(|object| object.of == of);
    let Some(object) = vms.pop() else {
        // The list leaves out objects that are gone. A read of the VM alone fails with `not-found` then.
        look(cx, services, id, &[]).await?;
        let message = format!("vCenter does not show VM {id} now");
        return Err(failure(Code::Unavailable, message));
    };
    let vm = Vm::new(object)?;
    vm.owned(cx)?;
    Ok((vm, listed))
}

fn referred(id: &str) -> Result<Moid, Failure> {
    is_id(id).then(|| Moid::new(VM, id)).ok_or_else(|| no_vm(id))
}

fn as_no_vm(failure: Failure, id: &str) -> Failure {
    match failure.code {
        Code::NotFound => no_vm(id),
        _ => failure,
    }
}
