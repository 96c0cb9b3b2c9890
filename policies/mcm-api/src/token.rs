//! The bootstrap token with which a VM joins the cluster.

use polity_sdk::prelude::*;

use crate::{Config, Machine, Token, driver};

/// Makes a token for the creation, unless there is a token that is still valid.
pub async fn prepare(cx: &Context<Machine, Config>, machine: &mut Machine) -> Result<(), Failure> {
    let usable = |token: &Token| token.expires > cx.now();
    if !cx.config().bootstrap_token || machine.status.bootstrap_token.as_ref().is_some_and(usable) {
        return Ok(());
    }
    let ttl = cx.config().creation_timeout(machine);
    let sealed = cx.act(cluster::mint("bootstrap-token", ttl)).await?;
    let (name, key) = sealed.parts();
    machine.status.bootstrap_token = Some(Token {
        name: name.to_owned(),
        key: key.to_owned(),
        expires: cx.now() + ttl,
    });
    Ok(())
}

/// Revokes the token of a machine that has joined. A token that cannot be revoked expires.
pub async fn revoke(cx: &Context<Machine, Config>, machine: &mut Machine) {
    let Some(token) = machine.status.bootstrap_token.take() else {
        return;
    };
    if let Err(failure) = driver::revoke(cx, &token).await.found() {
        cx.event(EventType::Warning, "TokenNotRevoked", failure.message);
    }
}
