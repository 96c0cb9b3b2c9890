//! The requests to a machine's driver. Each carries the machine's class, and a creation the Secret of the class.

use polity_sdk::cloud::machine::{self as machines, Creation, Known, Vm};
use polity_sdk::prelude::*;
use serde_json::Value;

use crate::{Config, Machine, MachineClass, Token};

/// A pass of a machine.
type Cx = Context<Machine, Config>;

/// The driver's answer about the VM of a machine.
pub enum Seen {
    /// The VM exists.
    There(Vm),
    /// The driver answered, but the answer cannot be read.
    Undecodable(Failure),
    /// The driver could not answer, or knows no VM.
    Failed(Failure),
}

fn known<'a>(machine: &'a Machine, class: Option<&'a MachineClass>) -> Known<'a> {
    Known {
        name: &machine.metadata.name,
        provider_id: machine.status.provider_id.as_deref(),
        provider_spec: class.map(|class| &class.spec.provider_spec),
        // Only a new machine boots with it. Where the host refuses it, the machine can still be seen and deleted.
        user_data: None,
    }
}

fn user_data(class: &MachineClass) -> Option<cluster::Sealed> {
    let secret = class.spec.secret_ref.as_ref();
    secret.map(|secret| cluster::sealed(&secret.name, "userData"))
}

/// Asks for the machine's VM.
pub async fn status(cx: &Cx, machine: &Machine, class: Option<&MachineClass>) -> Seen {
    let status = machines::status(&known(machine, class));
    match cx.ask(status).await.map(machines::read) {
        Ok(Ok(vm)) => Seen::There(vm),
        Ok(Err(failure)) => Seen::Undecodable(failure),
        Err(failure) => Seen::Failed(failure),
    }
}

/// Creates the machine's VM.
pub async fn create(cx: &Cx, machine: &Machine, class: Option<&MachineClass>) -> Result<Vm, Failure> {
    let creation = Creation {
        name: &machine.metadata.name,
        provider_spec: class.map(|class| &class.spec.provider_spec),
        user_data: class.and_then(user_data),
        bootstrap_token: machine.status.bootstrap_token.as_ref().map(sealed),
    };
    cx.act(machines::create(&creation)).await
}

/// Does the setup that the machine's VM needs after its creation. Returns whether the driver has such a setup.
pub async fn initialize(cx: &Cx, machine: &Machine, class: Option<&MachineClass>) -> Result<bool, Failure> {
    let initialized = cx.act(machines::initialize(&known(machine, class))).await;
    implemented(initialized.map(drop)).map(|done| done.is_some())
}

/// Deletes the machine's VM.
pub async fn delete(cx: &Cx, machine: &Machine, class: Option<&MachineClass>) -> Result<(), Failure> {
    cx.act(machines::delete(&known(machine, class))).await.map(drop)
}

/// Asks for any VM of the machine, also a VM that is not recorded; `None` if there is none, or if the driver cannot list VMs.
pub async fn left(cx: &Cx, machine: &Machine) -> Result<Option<String>, Failure> {
    let listed = cx.ask(machines::list_of(&machine.metadata.uid)).await;
    let listed = implemented(listed)?.unwrap_or_default();
    // A driver of an earlier version lists all machines of the tenant.
    let mut own = listed.machines.into_iter();
    let own = own.find(|vm| vm.owner == machine.metadata.uid);
    Ok(own.map(|vm| vm.provider_id))
}

/// Asks for the cloud's ids of volumes. The list is empty if the driver does not have this operation.
pub async fn volumes(cx: &Cx, specifications: &[Value]) -> Result<Vec<String>, Failure> {
    let named = implemented(cx.ask(machines::volumes(specifications)).await)?;
    Ok(named.unwrap_or_default().volume_ids)
}

/// Revokes the machine's bootstrap token.
pub async fn revoke(cx: &Cx, token: &Token) -> Result<(), Failure> {
    cx.act(cluster::revoke(sealed(token))).await
}

fn sealed(token: &Token) -> cluster::Sealed {
    cluster::sealed(&token.name, &token.key)
}

/// An answer; `None` if the driver does not have the operation.
fn implemented<A>(answer: Result<A, Failure>) -> Result<Option<A>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.code == Code::Unimplemented => Ok(None),
        Err(failure) => Err(failure),
    }
}
