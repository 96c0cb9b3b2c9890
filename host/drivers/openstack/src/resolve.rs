//! Finds out the result of a boot whose answer was lost.

use polity_driver_sdk::prelude::*;

use crate::Config;
use crate::compute::{self, Server};
use crate::manifest::LINGERS;

/// How a server with the right name is related to the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// The boot created the server.
    Its,
    /// The boot did not create the server.
    Anothers,
    /// It is not clear whether the boot created the server, with the reason.
    Unclear(&'static str),
}

/// A boot, and the times that tell its server from others.
struct Boot<'a> {
    cx: &'a Context,
    entry: &'a Entry,
    /// The boot cannot have created a server that is older than this.
    earliest: u64,
    /// The boot has not created a server without marks that is older than this: nova would have written the marks by now.
    settled: u64,
}

/// Finds the server of a boot.
pub(crate) async fn resolve(cx: &Context, entry: &Entry) -> Finding {
    if cx.operation() != "router.boot" {
        let message = format!("{} creates nothing", cx.operation());
        return Finding::CannotTell(failure(Code::Unimplemented, message));
    }
    match look(cx, entry).await {
        Ok(Some(id)) => Finding::Found(json!({"id": id}).to_string()),
        Ok(None) => Finding::None,
        Err(failure) => Finding::CannotTell(failure),
    }
}

/// The id of the server; `None` if every read was complete and there is no server.
async fn look(cx: &Context, entry: &Entry) -> Result<Option<String>, Failure> {
    let boot = Boot::of(cx, entry)?;
    let is_its = |server: &Server| boot.judge(server) == Is::Its;
    let servers = compute::of_name(cx, &entry.intent, is_its).await?;
    let mut found = None;
    for server in &servers {
        match boot.judge(server) {
            Is::Anothers => {}
            Is::Its if found.is_none() => found = Some(server.id.clone()),
            Is::Its => {
                return Err(unclear(
                    server,
                    "is the second server with the key of the boot: look at both, remove one, or use polity resolve",
                ));
            }
            Is::Unclear(why) => return Err(unclear(server, why)),
        }
    }
    Ok(found)
}

impl<'a> Boot<'a> {
    fn of(cx: &'a Context, entry: &'a Entry) -> Result<Self, Failure> {
        let skew = Config::of(cx)?.clock_skew();
        let lingers = u64::try_from(LINGERS.as_millis()).unwrap_or(u64::MAX);
        Ok(Boot {
            cx,
            entry,
            earliest: entry.since.saturating_sub(skew),
            settled: cx.now().saturating_sub(lingers).saturating_sub(skew),
        })
    }

    /// Nova writes the marks together with the server. So a server without marks was created by someone else, or its marks were
    /// removed later.
    fn judge(&self, server: &Server) -> Is {
        let is_before = |time: u64| server.created.is_some_and(|created| created < time);
        match server.key.as_deref() {
            Some(key) if key != self.entry.key => Is::Anothers,
            Some(_) if !server.is_own(self.cx) => Is::Unclear(
                "has the key of the boot, but the owner mark of another object: correct the mark, or use polity resolve",
            ),
            Some(_) if is_before(self.earliest) => Is::Unclear(
                "has the key of the boot, but is older than the boot: check the clocks, or use polity resolve",
            ),
            Some(_) => Is::Its,
            None if is_before(self.earliest) => Is::Anothers,
            None if server.owner.is_none() && is_before(self.settled) => Is::Anothers,
            None => Is::Unclear(
                "has the name of the router, but no key of a boot: set its marks, remove it, or use polity resolve",
            ),
        }
    }
}

fn unclear(server: &Server, why: &str) -> Failure {
    failure(Code::FailedPrecondition, format!("server {} {why}", server.id))
}
