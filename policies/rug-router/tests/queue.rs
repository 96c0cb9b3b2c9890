//! The coalescing rules, 0 to 6, and how letters and states are spelled.

use rug_router::{Action, State, coalesce};
use serde_json::json;

fn letters(text: &str) -> Vec<Action> {
    let letter = |letter: char| {
        let text = format!("\"{letter}\"");
        serde_json::from_str(&text).expect("a letter")
    };
    text.chars().map(letter).collect()
}

#[test]
fn the_examples_of_the_specification() {
    for (before, queue, after, left) in [
        ("P", "UUPP", "U", ""),
        ("P", "UPUPUR", "U", "R"),
        ("P", "CU", "C", ""),
        ("P", "UC", "C", ""),
        ("P", "CD", "D", "CD"),
        ("P", "", "P", ""),
        ("U", "", "U", ""),
    ] {
        let mut rest = letters(queue);
        assert_eq!(
            coalesce(letters(before)[0], &mut rest),
            letters(after)[0],
            "{queue}"
        );
        assert_eq!(rest, letters(left), "{queue}");
    }
}

#[test]
fn each_rule_by_itself() {
    for (rule, before, queue, after, left) in [
        (
            "0: a deletion anywhere wins, and the queue stays",
            "E",
            "RUPD",
            "D",
            "RUPD",
        ),
        ("1: a creation is more than an update", "U", "C", "C", ""),
        ("2: a rebuild is more than a creation", "C", "E", "E", ""),
        ("2: and more than an update", "U", "ER", "E", "R"),
        ("3: a creation deals with updates", "C", "UR", "C", "R"),
        (
            "4: polls are dropped where there is something else to do",
            "R",
            "PP",
            "R",
            "",
        ),
        ("4: a poll deals with polls", "P", "PP", "P", ""),
        ("5: a different event waits", "R", "U", "R", "U"),
        ("5: a rebuild stays one", "E", "CU", "E", "CU"),
        ("5: a read does not become a rebuild", "R", "E", "R", "E"),
        ("6: the same event is dealt with once", "R", "RR", "R", ""),
        ("6: a poll makes way for anything", "P", "R", "R", ""),
    ] {
        let mut rest = letters(queue);
        assert_eq!(
            coalesce(letters(before)[0], &mut rest),
            letters(after)[0],
            "{rule}"
        );
        assert_eq!(rest, letters(left), "{rule}");
    }
}

/// So it may be left out of the queue when it comes.
#[test]
fn an_event_behind_an_equal_one_changes_nothing() {
    let all = letters("CRUDPE");
    for action in &all {
        for first in &all {
            for second in &all {
                let (mut once, mut twice) = (vec![*first, *second], vec![*first, *first, *second]);
                let chosen = coalesce(*action, &mut once);
                assert_eq!(coalesce(*action, &mut twice), chosen);
                once.dedup();
                twice.dedup();
                assert_eq!(once, twice);
            }
        }
    }
}

/// The legend calls CHECK_BOOT by another name than the drawing.
#[test]
fn erratum_13_a_state_is_called_as_it_is_drawn() {
    let spelled = |state: State| serde_json::to_value(state).expect("a name");
    assert_eq!(spelled(State::CheckBoot), "CHECK_BOOT");
    assert!(serde_json::from_value::<State>(json!("CHECKBOOT")).is_err());
    assert_eq!(serde_json::to_value(Action::Rebuild).expect("a letter"), "E");
}

/// The original learned further letters later. They are none here.
#[test]
fn erratum_12_the_letters_are_those_of_the_legend() {
    for other in ["DEGRADED", "CLUSTER_REBUILD", "X"] {
        assert!(serde_json::from_value::<Action>(json!(other)).is_err(), "{other}");
    }
}
