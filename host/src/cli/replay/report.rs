//! The report of `polity replay`.

use std::collections::{BTreeMap, BTreeSet};

use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::display::printable;
use crate::judge::{Example, Group, Groups, Shared, What};
use crate::progress::{Format, print_json};

/// Prints what was found. `edges` has the meanings of edges; `cut` tells what was cut of the limits of bindings.
pub(super) fn print(
    format: Format,
    title: &str,
    groups: &Groups,
    edges: &BTreeMap<&str, &str>,
    cut: &BTreeSet<String>,
) {
    if format == Format::Json {
        print_json(&document(title, groups, cut));
        return;
    }
    let unfinished: u64 = groups.unfinished.values().sum();
    let mut counts = vec![
        format!(
            "{} of {} passes would be decided differently",
            groups.differs,
            groups.passes()
        ),
        format!("{} the same", groups.same),
    ];
    let further = [
        (groups.faults, "fault"),
        (groups.would_ask, "need answers that were not recorded"),
        (unfinished, "cannot be judged"),
    ];
    let further = further.into_iter().filter(|(count, _)| *count > 0);
    counts.extend(further.map(|(count, what)| format!("{count} {what}")));
    print_line(&format!("{title}: {}", counts.join(", ")));
    for (why, count) in &groups.unfinished {
        print_line(&format!("{count:>6}  not judged: {why}"));
    }
    if groups.left_out > 0 {
        let left_out = groups.left_out;
        print_line(&format!(
            "{left_out:>6}  differences are not shown: there are too many that are not alike"
        ));
    }
    for (shared, group) in groups.groups() {
        print_line(&format!("{:>6}  {}", group.passes, words(&shared, edges)));
        for example in &group.examples {
            print_line(&format!("        {}", in_one_line(&shared, example)));
        }
    }
}

fn print_line(line: &str) {
    crate::progress::print(&printable(line));
}

/// A group in words.
fn words(shared: &Shared, edges: &BTreeMap<&str, &str>) -> String {
    let Shared {
        role,
        what,
        of,
        was,
        now,
    } = shared;
    let (was, now) = (
        was.as_deref().unwrap_or("nothing"),
        now.as_deref().unwrap_or("nothing"),
    );
    let gone = if now == "nothing" { "no longer " } else { "" };
    let said = match what {
        What::Intent => format!("creates with another intent, {of}: {was} → {now}"),
        What::Fault => format!("breaks its contract, {of}: {now}"),
        What::NoFault => format!("does not break its contract any more, {of}: {was}"),
        What::Earlier => format!("acts before it looks: {of} {now}"),
        What::Order => format!("acts in another order: {now} before {of}"),
        What::ChangedAct => format!("acts with {of}: {was} → {now}"),
        What::WouldAct => format!("acts, which was not done: {of} {now}"),
        What::NoLonger => format!("does not act any more: {of} {was}"),
        What::Verdict => format!("verdict: {was} → {now}"),
        What::Patch => format!("writes {of}: {was} → {now}"),
        What::Next => format!("next: {was} → {now}"),
        What::Wait => format!("waits after {of}: {was} → {now}"),
        What::Note => {
            let meaning = edges
                .get(of.as_str())
                .map_or_else(String::new, |meaning| format!(": {meaning}"));
            format!("{gone}notes {of}{meaning}")
        }
        What::Event => format!("{gone}writes the Event {of}"),
        What::Bytes => "decides the same with other bytes".to_owned(),
        What::WouldAsk => format!("asks for {of}, which was not answered"),
        What::Reads => format!("{gone}rests on {of}, which is no difference in what is decided"),
    };
    format!("{} {said}", role.as_str())
}

fn in_one_line(shared: &Shared, example: &Example) -> String {
    let Example {
        at,
        pass,
        key,
        kind,
        was,
        now,
    } = example;
    let namespace = key
        .namespace
        .as_deref()
        .map_or_else(String::new, |namespace| format!("{namespace}/"));
    let values = match (was, now) {
        _ if *was == shared.was && *now == shared.now => String::new(),
        (Some(was), Some(now)) => format!(": {was} → {now}"),
        (Some(one), None) | (None, Some(one)) => format!(": {one}"),
        (None, None) => String::new(),
    };
    let at = rfc3339(at.0);
    format!(
        "{} {namespace}{}, pass {} at {at}{values}",
        kind.kind, key.name, pass.0
    )
}

/// The report as one document.
fn document(title: &str, groups: &Groups, cut: &BTreeSet<String>) -> Value {
    let example = |example: &Example| {
        json!({
            "kind": example.kind, "namespace": example.key.namespace, "name": example.key.name,
            "binding": example.key.binding, "pass": example.pass, "at": rfc3339(example.at.0),
            "was": example.was, "now": example.now,
        })
    };
    let group = |(shared, group): &(Shared, Group)| {
        json!({
            "role": shared.role, "difference": shared.what, "of": shared.of, "was": shared.was, "now": shared.now,
            "passes": group.passes, "examples": group.examples.iter().map(example).collect::<Vec<_>>(),
        })
    };
    json!({
        "policy": title, "passes": groups.passes(), "same": groups.same, "differs": groups.differs,
        "wouldAsk": groups.would_ask, "faults": groups.faults, "unfinished": groups.unfinished,
        "groups": groups.groups().iter().map(group).collect::<Vec<_>>(), "groupsLeftOut": groups.left_out,
        "cut": cut,
    })
}
