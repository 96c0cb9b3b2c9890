//! VMs as they are read, with their marks.

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
    /// Its options.
    pub(crate) options: Options,
}

impl Vm {
    fn new(object: Object) -> Result<Self, Failure> {
        let id = object.of.id.clone();
        let options = object.value(&EXTRA_CONFIG)?.map(Options::read);
        // vCenter has no configuration of a VM while it is being made, and of one whose files or host it cannot reach.
        // Neither is gone.
        let options = options.ok_or_else(|| {
            let message = format!("the configuration of VM {id} cannot be read now");
            failure(Code::Unavailable, message)
        })?;
        Ok(Vm { id, object, options })
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Its id, if it belongs to this operation's object.
    pub(crate) fn owned(&self, cx: &Context) -> Result<Owned<'_>, Failure> {
        let stamp = self.options.are_own(cx).then(|| cx.owner());
        cx.owned(&self.id, stamp)
    }
}

/// The failure of an id behind which there is no VM.
pub(crate) fn no_vm(id: &str) -> Failure {
    failure(Code::NotFound, format!("no VM {id:?}"))
}

/// Reads a VM, whoever owns it.
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

/// Reads a VM of this operation's object.
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

/// Reads a VM of this operation's object, and properties of what one of its properties lists.
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
        // What has gone is left out of a list. Asked for alone, it is said to be gone.
        look(cx, services, id, &[]).await?;
        let message = format!("VM {id} cannot be read now");
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
