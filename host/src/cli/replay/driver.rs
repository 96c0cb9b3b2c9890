//! What another driver would have done with what a cloud answered.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use polity_drivers::{Difference, Exchanged, Part};
use polity_kube_rules::time::rfc3339;
use serde_json::json;

use super::super::policy;
use super::Replay;
use crate::display::{SHOWN, printable, shortened};
use crate::progress::{Format, print, print_json, say};

/// Plays what connections exchanged, or one alone, to a driver: a wasm file, or the folder of its crate.
pub(super) fn run(driver: &Path, replay: &Replay, format: Format) -> Result<ExitCode> {
    let (policies, source) = policy::named(driver, format)?;
    let driver = policies.driver(&source)?;
    let (folder, recording) = replay.recorded.open(&replay.sessions)?;
    let connection = replay.connection.as_deref();
    let (mut all, mut differing) = (0_u64, 0_u64);
    let unread = recording.exchanges(|exchanged| {
        if connection.is_some_and(|name| *name != exchanged.connection) {
            return;
        }
        all += 1;
        let difference = exchanged.replay(&driver).err();
        differing += u64::from(difference.is_some());
        show(format, &exchanged, difference);
    })?;
    replay.sessions.warn_of(format, &folder, &unread);
    if format == Format::Text {
        print(&format!(
            "{all} operations: {} as recorded, {differing} otherwise",
            all - differing
        ));
    }
    if all == 0 {
        say(
            format,
            &format!("{} has no exchanges of a driver to replay", folder.display()),
        );
    }
    Ok(ExitCode::from(u8::from(differing > 0)))
}

fn show(format: Format, exchanged: &Exchanged, difference: Option<Difference>) {
    let difference = difference.map(|difference| difference.to_string());
    let Exchanged {
        at,
        connection,
        part,
        call,
        ..
    } = exchanged;
    match (format, difference) {
        (Format::Json, difference) => print_json(&json!({
            "at": rfc3339(*at), "connection": connection, "operation": call.operation, "part": part,
            "owner": call.owner, "difference": difference,
        })),
        (Format::Text, None) => {}
        (Format::Text, Some(difference)) => {
            let part = match part {
                Part::Perform => "",
                Part::Prepare => " (prepare)",
                Part::Commit => " (commit)",
                Part::Resolve => " (resolve)",
            };
            let [connection, operation, owner, difference] =
                [connection, &call.operation, &call.owner, &difference].map(|text| shortened(text, SHOWN));
            let at = rfc3339(*at);
            let line = format!("{at} {connection} {operation}{part} of {owner}: {difference}");
            print(&printable(&line));
        }
    }
}
