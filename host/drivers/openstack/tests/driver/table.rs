//! The tables of Nova and Neutron in `host/drivers/ERRORS.md`: the services answer a create or a change with each row.

use polity_driver_sdk::Failure;
use polity_driver_sdk::test::name_of;
use serde_json::{Value, json};

use crate::bench::{Bench, boot};
use crate::cloud::Reply;
use crate::cloud::neutron::error;
use crate::cloud::nova::fault;

const PAGE: &str = include_str!("../../../ERRORS.md");

/// A row: the code with its words, the status, and what becomes of the error.
struct Row {
    code: &'static str,
    words: &'static str,
    status: u16,
    /// The code of the failure, and the effect.
    becomes: (&'static str, &'static str),
}

/// The rows of a table.
fn rows(of: &str) -> Vec<Row> {
    let section = PAGE.split("\n## ").find(|section| {
        section
            .strip_prefix(of)
            .is_some_and(|rest| rest.starts_with('\n'))
    });
    let lines = section.expect("a section").lines();
    let rows = lines.filter(|line| line.starts_with("| `") || line.starts_with("| (none)"));
    rows.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [code, status, becomes, effect, "", source] = cells[..] else {
        panic!("{line}")
    };
    assert!(!source.is_empty(), "{line}");
    let (code, words) = code.split_once(": ").unwrap_or((code, "why"));
    Row {
        code: code.trim_matches('`'),
        words,
        status: status.parse().expect("a status"),
        becomes: (becomes.trim_matches('`'), effect),
    }
}

impl Row {
    fn reply(&self, by_service: impl Fn(u16, &str, &str) -> Reply) -> Reply {
        match self.code {
            "(none)" => Reply::new(self.status, "<html><body>no backend</body></html>"),
            // keystonemiddleware, in front of the service.
            "error" => Reply::json(
                self.status,
                json!({"error": {"code": self.status, "message": self.words, "title": "Unauthorized"}}),
            ),
            code => by_service(self.status, code, self.words),
        }
    }

    fn check(&self, bench: &Bench, answer: Result<Value, Failure>) {
        let is = match &answer {
            Ok(_) => ("(done)".to_owned(), ""),
            Err(failure) if bench.play.changed_nothing(failure) => (name_of(failure.code), "none"),
            Err(failure) => (name_of(failure.code), "unknown"),
        };
        let (code, effect) = self.becomes;
        assert_eq!(is, (code.to_owned(), effect), "{} {}", self.status, self.code);
    }
}

#[test]
fn an_error_of_nova_is_what_the_page_says() {
    let rows = rows("Nova");
    assert!(rows.len() > 20);
    for row in rows {
        let mut bench = Bench::new();
        bench.cloud().port_for("net-1", 1, "edge");
        bench.cloud().answer("POST servers", row.reply(fault));
        let answer = bench.call("router.boot", boot("edge", &[1]));
        row.check(&bench, answer);
    }
}

#[test]
fn an_error_of_neutron_is_what_the_page_says() {
    let rows = rows("Neutron");
    assert!(rows.len() > 15);
    for row in rows {
        let mut bench = Bench::new();
        let id = bench.cloud().server("edge");
        bench.cloud().port_in("net-1", 1, "edge", &id);
        bench.cloud().answer("PUT v2.0/ports", row.reply(error));
        let answer = bench.call("router.delete-ports", json!({"name": "edge"}));
        row.check(&bench, answer);
    }
}
