//! The table of vSphere in `host/drivers/ERRORS.md`: the vCenter answers a change with each row.

use polity_driver_sdk::test::{Reply, name_of};

use crate::bench::{Bench, own};
use crate::vcenter::xml;

const PAGE: &str = include_str!("../../../ERRORS.md");

#[test]
fn a_fault_of_vcenter_is_what_the_page_says() {
    let section = PAGE
        .split("\n## ")
        .find(|section| section.starts_with("vSphere\n"));
    let lines = section.expect("a section").lines();
    let rows = lines.filter(|line| line.starts_with("| `") || line.starts_with("| (none)"));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [code, status, becomes, effect, "", source] = cells[..] else {
            panic!("{row}")
        };
        assert!(!source.is_empty(), "{row}");
        let status: u16 = status.parse().expect("a status");
        let reply = match code {
            "(none)" => Reply::new(status, "<html><h1>no backend</h1></html>"),
            fault => Reply::new(status, xml::fault(fault.trim_matches('`'), "<x/>")),
        };
        let mut bench = Bench::new();
        bench.vcenter().instead.insert("PowerOnVM_Task".to_owned(), reply);
        let failure = bench.call("vm.power-on", own()).unwrap_err();
        let is = if bench.play.changed_nothing(&failure) {
            "none"
        } else {
            "unknown"
        };
        assert_eq!(
            (name_of(failure.code), is, failure.retry_after),
            (becomes.trim_matches('`').to_owned(), effect, None),
            "{row}"
        );
        count += 1;
    }
    assert!(count > 60, "{count}");
}
