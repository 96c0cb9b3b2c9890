//! The machine's driver.

use mcm_api::{Machine, MachineClass, Token};
use polity_sdk::cloud::machine::{self as machines, Creation, Named, Vm};
use polity_sdk::prelude::*;

use crate::Cx;

/// The driver's answer about the VM of a machine.
pub(crate) enum Seen {
    There(Vm),
    /// The driver answered, but the answer cannot be read.
    Undecodable(Failure),
    Failed(Failure),
}

fn named(machine: &Machine) -> Named<'_> {
    Named {
        name: &machine.metadata.name,
        provider_id: machine.status.provider_id.as_deref(),
    }
}

/// Asks for the machine's VM.
pub(crate) async fn status(cx: &Cx, machine: &Machine) -> Seen {
    match cx.ask(machines::status(named(machine))).await.map(machines::read) {
        Ok(Ok(vm)) => Seen::There(vm),
        Ok(Err(failure)) => Seen::Undecodable(failure),
        Err(failure) => Seen::Failed(failure),
    }
}

/// Creates the machine's VM.
pub(crate) async fn create(cx: &Cx, machine: &Machine, class: Option<&MachineClass>) -> Result<Vm, Failure> {
    let secret = class.and_then(|class| class.spec.secret_ref.as_ref());
    let creation = Creation {
        name: &machine.metadata.name,
        provider_spec: class.map(|class| &class.spec.provider_spec),
        user_data: secret.map(|secret| cluster::sealed(&secret.name, "userData")),
        bootstrap_token: machine.status.bootstrap_token.as_ref().map(sealed),
    };
    cx.act(machines::create(&creation)).await
}

/// Deletes the machine's VM.
pub(crate) async fn delete(cx: &Cx, machine: &Machine) -> Result<(), Failure> {
    cx.act(machines::delete(named(machine))).await.map(drop)
}

/// Revokes the machine's bootstrap token.
pub(crate) async fn revoke(cx: &Cx, token: &Token) -> Result<(), Failure> {
    cx.act(cluster::revoke(sealed(token))).await
}

fn sealed(token: &Token) -> cluster::Sealed {
    cluster::sealed(&token.name, &token.key)
}
