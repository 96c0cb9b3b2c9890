//! What `polity test` prints and writes.

use serde_json::json;

use super::Played;
use crate::display::{duration, printable};
use crate::progress::{Format, print, print_json, say};

/// Prints a scenario that has ended.
pub(super) fn print_one(format: Format, one: &Played) {
    let holds = one.wrong.is_empty();
    if format == Format::Json {
        let milliseconds = u64::try_from(one.took.as_millis()).unwrap_or(u64::MAX);
        print_json(
            &json!({"scenario": one.folder, "holds": holds, "wrong": one.wrong, "passes": one.passes,
            "milliseconds": milliseconds}),
        );
        return;
    }
    let word = if holds { "ok" } else { "FAILED" };
    let (folder, took) = (one.folder.display(), duration(one.took));
    let line = format!("{word:<6} {folder}  {} passes, {took}", one.passes);
    let wrong = one.wrong.iter().map(|why| format!("       {why}"));
    let lines: Vec<String> = std::iter::once(line)
        .chain(wrong)
        .map(|line| printable(&line))
        .collect();
    print(&lines.join("\n"));
}

/// Prints the sum of all.
pub(super) fn print_end(format: Format, all: usize, failed: usize, missing: &[String]) {
    if format == Format::Text {
        let scenarios = if all == 1 { "scenario" } else { "scenarios" };
        print(&format!(
            "{all} {scenarios}: {} hold, {failed} failed",
            all - failed
        ));
    }
    if !missing.is_empty() {
        say(
            format,
            &format!("edges that no scenario took: {}", missing.join(", ")),
        );
    }
}

/// The report in the format of JUnit, which CI systems read.
pub(super) fn junit(played: &[Played]) -> String {
    let failed = played.iter().filter(|one| !one.wrong.is_empty()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"polity\" tests=\"{}\" failures=\"{failed}\">\n",
        played.len()
    );
    for one in played {
        let name = escaped(&one.folder.display().to_string());
        let time = one.took.as_secs_f64();
        text.push_str(&format!(
            "  <testcase classname=\"polity\" name=\"{name}\" time=\"{time:.3}\""
        ));
        if one.wrong.is_empty() {
            text.push_str("/>\n");
        } else {
            let (failure, all) = (escaped(&one.failure), escaped(&one.wrong.join("\n")));
            text.push_str(&format!(
                ">\n    <failure message=\"{failure}\">{all}</failure>\n  </testcase>\n"
            ));
        }
    }
    text.push_str("</testsuite>\n");
    text
}

/// A text in XML 1.0, which has no control characters and no U+FFFE and U+FFFF.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_report_is_xml_whatever_a_failure_says_and_names_the_failure() {
        let one = |wrong: &[&str], failure: &str| Played {
            folder: "a&b".into(),
            took: Duration::from_millis(1_500),
            passes: 7,
            wrong: wrong.iter().map(|why| (*why).to_owned()).collect(),
            failure: failure.to_owned(),
            counted: Default::default(),
        };
        let text = junit(&[
            one(&[], ""),
            one(
                &["building it", "not <ok> \u{1b}[1m", "\"why\" \u{fffe}\u{ffff}"],
                "not <ok> \u{1b}[1m",
            ),
        ]);
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"polity\" tests=\"2\" failures=\"1\">\n  \
             <testcase classname=\"polity\" name=\"a&amp;b\" time=\"1.500\"/>\n  \
             <testcase classname=\"polity\" name=\"a&amp;b\" time=\"1.500\">\n    \
             <failure message=\"not &lt;ok&gt; \u{fffd}[1m\">building it\nnot &lt;ok&gt; \u{fffd}[1m\n&quot;why&quot; \
             \u{fffd}\u{fffd}</failure>\n  </testcase>\n</testsuite>\n"
        );
    }

    #[test]
    fn each_character_of_a_report_is_one_of_xml() {
        // The production Char of XML 1.0.
        let is_char = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
        let all: String = ('\0'..=char::MAX).collect();
        let wrong: Vec<char> = escaped(&all).chars().filter(|c| !is_char(*c)).collect();
        assert_eq!(wrong, []);
    }
}
