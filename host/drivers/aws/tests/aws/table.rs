//! The table of EC2 in `host/drivers/ERRORS.md`: the stand-in serves each row, and the create ends as the row says.

use polity_driver_aws::Aws;
use polity_driver_sdk::test::{Reply, name_of};
use polity_driver_sdk::{Driver as _, StatusClass};

use crate::ec2::{error, named, object, server};

const PAGE: &str = include_str!("../../../ERRORS.md");

/// The cells of each row of the table.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("EC2\n"));
    let lines = section.expect("a section").lines();
    let rows = lines.filter(|line| line.starts_with("| `") || line.starts_with("| (none)"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn an_error_of_ec2_is_what_the_page_says() {
    let server = server();
    let mut owner = object(&server);
    let mut count = 0;
    for row in rows() {
        let [code, status, becomes, effect, pause, source] = row[..] else {
            panic!("{row:?}")
        };
        assert!(!source.is_empty(), "{row:?}");
        let status = status.parse().expect("a status");
        let reply = match code
            .split_once('`')
            .map(|(_, rest)| rest.split_once('`').expect("a code"))
        {
            Some((code, words)) => error(status, code, words.trim_start_matches(": ")),
            None => Reply::new(status, "<html><body>RequestLimitExceeded</body></html>"),
        };
        server.borrow_mut().instead.insert("RunInstances".into(), reply);
        let failure = owner.perform("machine.create", named("web-1")).unwrap_err();
        let is = (
            format!("`{}`", name_of(failure.code)),
            if owner.play.changed_nothing(&failure) {
                "none"
            } else {
                "unknown"
            },
            failure
                .retry_after
                .map(|ms| format!("{} s", ms / 1_000))
                .unwrap_or_default(),
        );
        assert_eq!(
            is,
            (becomes.to_owned(), effect, pause.to_owned()),
            "{code}, {status}"
        );
        count += 1;
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_page_has_every_refusal_of_the_manifest() {
    let manifest = Aws::manifest();
    let refusals = manifest.endpoints["ec2"].refusals.as_ref().expect("some");
    for code in &refusals.codes[&StatusClass::ServerError] {
        let code = format!("`{code}`");
        let row = rows()
            .find(|row| row[0] == code)
            .unwrap_or_else(|| panic!("{code}"));
        assert!(row[1].starts_with('5') && row[3] == "none", "{row:?}");
    }
}
