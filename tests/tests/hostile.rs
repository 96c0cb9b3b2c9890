//! Hostile behaviours, one in each row: what a policy does in one of its roles, and the expected result. A
//! row also proves that its neighbours go on: an object of another tenant under the same policy, and an
//! object under another policy, get as many passes as without an offender.
//!
//! `POLITY_ROW` runs only the rows whose names contain its value.

mod connections;
mod describe;
mod driver;
mod identity;
mod judge;
mod lifecycle;
mod memory;
mod retry;
mod row;
mod stage;

use std::time::Duration;

use polity::polls::take_longest;
use row::Row;
use stage::Stage;
use tokio::sync::OnceCell;

/// How many rows there are at least.
const ROWS: usize = 100;

/// The longest poll of a call of a cloud, in time of the processor. No deadline cuts a poll.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Whether a row of this name is to be played.
fn is_chosen(name: &str) -> bool {
    match std::env::var("POLITY_ROW") {
        Ok(words) => name.contains(&words),
        Err(_) => true,
    }
}

/// How often the neighbours pass while nobody offends.
async fn undisturbed() -> [usize; 2] {
    static PASSES: OnceCell<[usize; 2]> = OnceCell::const_new();
    let play = async || {
        let stage = Stage::with(Vec::new()).await;
        stage.play().await;
        stage.passes_of_neighbours()
    };
    *PASSES.get_or_init(play).await
}

/// Nothing is wrong with so many rows.
fn is_right(wrong: &[String], rows: usize) {
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Plays rows, and compares the neighbours with those of a host without offenders.
async fn table(binding: Option<serde_json::Value>, kind: &str, annotation: &str, rows: Vec<Row>) {
    let rows: Vec<Row> = rows.into_iter().filter(|row| is_chosen(&row.name)).collect();
    let stage = Stage::with(binding.into_iter().collect()).await;
    take_longest();
    let mut wrong = judge::play(&stage, kind, annotation, &rows).await;
    let (longest, what) = take_longest();
    if longest > POLL {
        wrong.push(format!("a poll of {what} took {longest:?}"));
    }
    let (with, without) = (stage.passes_of_neighbours(), undisturbed().await);
    if with != without {
        wrong.push(format!(
            "the neighbours passed {with:?} times, and {without:?} times without offenders"
        ));
    }
    is_right(&wrong, rows.len());
}

#[tokio::test(start_paused = true)]
async fn whatever_shape_a_patch_has_its_own_object_bears_it() {
    table(None, "Puppet", "answer", lifecycle::shapes()).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_its_own_a_patch_does_not_change() {
    table(None, "Puppet", "answer", lifecycle::writes()).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_done_to_others_is_refused_where_it_is_not_granted() {
    table(None, "Puppet", "answer", lifecycle::acts()).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_is_answered_within_bounds() {
    table(None, "Puppet", "answer", lifecycle::asks()).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_all_there_is_gets_some_of_it_and_others_theirs() {
    table(None, "Puppet", "answer", lifecycle::greed()).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_concluded_is_bounded() {
    table(None, "Puppet", "answer", lifecycle::conclusions()).await;
}

#[tokio::test(start_paused = true)]
async fn an_identity_policy_that_misbehaves_lets_nobody_through() {
    table(Some(stage::wards()), "Ward", "identity", identity::rows()).await;
}

#[test]
fn each_row_has_a_name_of_its_own() {
    let rows = [
        lifecycle::shapes(),
        lifecycle::writes(),
        lifecycle::acts(),
        lifecycle::asks(),
        lifecycle::greed(),
        lifecycle::conclusions(),
        identity::rows(),
    ];
    let mut names: Vec<String> = rows.iter().flatten().map(Row::object).collect();
    assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    let all = names.len() + retry::rows().len() + describe::rows().len() + memory::rows().len();
    assert!(all >= ROWS, "{all} rows");
    names.sort_unstable();
    let twice: Vec<&[String]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
