//! What became of a boot whose answer was lost.

use polity_driver_sdk::prelude::*;

use crate::Config;
use crate::compute::{self, Server};
use crate::manifest::LINGERS;

/// What a server of the right name is to the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// What it created.
    Its,
    /// Somebody else's.
    Anothers,
    /// Maybe what it created: the reason.
    Unclear(&'static str),
}

/// A boot, and when its server was created.
struct Boot<'a> {
    cx: &'a Context,
    entry: &'a Entry,
    /// No server of it is older.
    earliest: u64,
    /// A server without marks that is older is not of it: it would have had them by now.
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

/// The id of the server; `None` if every look was complete and there is nothing.
async fn look(cx: &Context, entry: &Entry) -> Result<Option<String>, Failure> {
    let boot = Boot::of(cx, entry)?;
    let is_its = |server: &Server| boot.judge(server) == Is::Its;
    let servers = compute::of_name(cx, &entry.intent, is_its).await?;
    let mut found = None;
    for server in &servers {
        match boot.judge(server) {
            Is::Anothers => {}
            Is::Its if found.is_none() => found = Some(server.id.clone()),
            Is::Its => return Err(unclear(server, "is the second one with the key of the boot")),
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

    /// Nova writes the marks with the server. So a server without them was created by somebody else, or somebody
    /// has taken them away.
    fn judge(&self, server: &Server) -> Is {
        let is_before = |time: u64| server.created.is_some_and(|created| created < time);
        match server.key.as_deref() {
            Some(key) if key != self.entry.key => Is::Anothers,
            Some(_) if !server.is_own(self.cx) => {
                Is::Unclear("has the key of the boot, but is another object's")
            }
            Some(_) if is_before(self.earliest) => Is::Unclear("has the key of the boot, but is older"),
            Some(_) => Is::Its,
            None if is_before(self.earliest) => Is::Anothers,
            None if server.owner.is_none() && is_before(self.settled) => Is::Anothers,
            None => Is::Unclear("has the name of the boot, but not the mark of any"),
        }
    }
}

fn unclear(server: &Server, why: &str) -> Failure {
    failure(Code::FailedPrecondition, format!("server {} {why}", server.id))
}
