//! A boot whose answer was lost (RUG-X13, RUG-X15, RUG-X16): decided before everything else, deleting or not.

use polity_sdk::Doubt;
use polity_sdk::prelude::*;

use crate::cloud::{self, Booted};
use crate::letters::State;
use crate::object::Router;
use crate::{Cx, boot, report};

/// What became of the boot in doubt, if there is one. Each boot counts as one attempt, here or where it was answered.
pub(crate) fn resolve(cx: &Cx, router: &mut Router) -> Result<Option<Next>, Failure> {
    let Some(doubted) = cx.pending().iter().find(|act| act.operation == cloud::BOOT) else {
        return Ok(None);
    };
    Ok(Some(match &doubted.state {
        Doubt::Unknown => {
            cx.note("RUG-X13");
            let message = "a boot may be under way: the cloud cannot say yet";
            report::not_ready(cx, router, "BootInDoubt", message);
            Next::after(cx.config().retry_delay)
        }
        Doubt::Done(answer) => {
            let booted: Booted = serde_json::from_str(answer).map_err(|error| {
                let message = format!("what a boot in doubt was answered does not decode: {error}");
                Failure::new(Code::Internal, message)
            })?;
            router.status.boot_attempts += 1;
            boot::adopt(router, booted.id);
            // What was plugged in is not told; what may have been is given back in the end.
            router.status.ports = router.spec.ports.iter().map(|port| port.mac.clone()).collect();
            router.take(cx, "RUG-X15", State::CheckBoot)
        }
        Doubt::Absent => {
            let message = "the boot did not arrive".to_owned();
            boot::failed(cx, router, "RUG-X16", "BootFailed", message)
        }
    }))
}
