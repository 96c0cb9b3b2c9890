//! A host that is killed in the middle of a scenario continues it: the example's expectations hold in the
//! end, and no step is performed twice.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use polity_tests::examples;

/// Where a process is killed: once it has said so many lines with all these parts.
pub(crate) type Point = (&'static [&'static str], usize);

/// A line of progress of some object.
const PASS: &[&str] = &["  → "];
/// A line of the scenario.
const STEP: &[&str] = &["scenario: "];
/// What is said of a policy before it is called.
const LOADED: &[&str] = &["policy ", " is loaded"];

/// Plays an example to its end, killed at each of these points. How often a step was said to be taken.
fn killed_at(example: &str, points: &[Point]) -> usize {
    let folder = examples::copy(example);
    let data = tempfile::tempdir().expect("a folder");
    let mut steps = 0;
    for point in points {
        let said = said_until(folder.path(), data.path(), Some(*point));
        steps += check(&said);
    }
    steps + ends_as_expected(folder.path(), data.path())
}

/// Plays an example to its end on what was left in the data folder. How often a step was said to be taken.
pub(crate) fn ends_as_expected(folder: &Path, data: &Path) -> usize {
    let said = said_until(folder, data, None);
    let all = said.join("\n");
    assert!(all.contains("everything is settled"), "{all}");
    assert!(!all.contains("not as expected"), "{all}");
    check(&said)
}

fn shows(line: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| line.contains(part))
}

/// No step failed; how many were taken.
fn check(said: &[String]) -> usize {
    let steps = said.iter().filter(|line| shows(line, STEP));
    steps
        .inspect(|line| assert!(!line.contains("failed"), "{line}"))
        .count()
}

/// What a process says until it has said this, and is killed, or until its end. It runs at the speed of the example and not
/// with `--speed max`: with `max` the clock jumps to the next event, and the process would be far beyond the point when the
/// kill arrives.
pub(crate) fn said_until(folder: &Path, data: &Path, point: Option<Point>) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    let command = command.args(["run", "--until-settled", "--deadline", "3h", "--data"]);
    let command = command
        .arg(data)
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut host = command.spawn().expect("it runs");
    let (tells, lines) = channel();
    read(host.stdout.take().expect("its output"), tells.clone());
    read(host.stderr.take().expect("its words"), tells);
    let said = match point {
        Some(point) => until(&lines, point),
        None => lines.iter().collect(),
    };
    if point.is_some() {
        host.kill().expect("killed");
    }
    host.wait().expect("ended");
    said
}

fn until(lines: &Receiver<String>, (parts, times): Point) -> Vec<String> {
    let mut said = Vec::new();
    let mut left = times;
    while left > 0 {
        // It may have come to its end before that.
        let Ok(line) = lines.recv() else { break };
        left -= usize::from(shows(&line, parts));
        said.push(line);
    }
    said
}

fn read(from: impl Read + Send + 'static, tells: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if tells.send(line).is_err() {
                return;
            }
        }
    });
}

/// Kills of each example where it is killed again and again.
const KILLS: usize = 20;

/// A moment by chance: after 1 to 8 passes of a process, after 1 or 2 steps of the scenario, or before all policies are
/// loaded.
fn drawn_point(drawn: usize) -> Point {
    match drawn % 4 {
        0 => (STEP, 1 + drawn / 4 % 2),
        1 => (LOADED, 1 + drawn / 4 % 2),
        _ => (PASS, 1 + drawn / 4 % 8),
    }
}

/// Plays an example again and again, each process killed at a moment by chance, until it was killed so often. Each play
/// ends as expected.
fn killed_often(example: &str) {
    let mut drawn = 0x9E37_79B9_7F4A_7C15_u64;
    let mut kills = 0;
    while kills < KILLS {
        let folder = examples::copy(example);
        let data = tempfile::tempdir().expect("a folder");
        loop {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let point = (kills < KILLS).then(|| drawn_point((drawn >> 33) as usize));
            let said = said_until(folder.path(), data.path(), point);
            check(&said);
            let all = said.join("\n");
            if all.contains("everything is settled") {
                assert!(
                    !all.contains("not as expected"),
                    "{example} after {kills} kills: {all}"
                );
                break;
            }
            assert!(point.is_some(), "{example} after {kills} kills: {all}");
            kills += 1;
        }
    }
}

#[test]
#[ignore = "takes several minutes: `cargo test -p polity-tests --test all resumed:: -- --ignored`"]
fn every_example_ends_as_expected_however_often_it_is_killed() {
    let only = std::env::var("POLITY_EXAMPLE").ok();
    let chosen = |example: &&str| only.as_deref().is_none_or(|only| only == *example);
    let all = examples::ALL.into_iter().filter(chosen);
    let played = all.inspect(|example| killed_often(example)).count();
    assert!(played > 0, "there is no example {only:?}");
}

#[test]
fn an_upgrade_that_somebody_began_is_not_taken_back_by_a_restart() {
    let points = [(LOADED, 1), (PASS, 4), (STEP, 4), (STEP, 1), (PASS, 3), (STEP, 2)];
    let steps = killed_at("orbiter-upgrade", &points);
    assert!(steps >= 10, "{steps} of 10 steps");
}

#[test]
fn machines_that_a_scenario_drains_and_freezes_end_as_expected_after_restarts() {
    killed_at("mcm-machine", &[(PASS, 2), (STEP, 1), (PASS, 6), (STEP, 2)]);
}

#[test]
fn what_a_scenario_took_from_tenants_stays_taken_after_restarts() {
    killed_at("capa-tenancy", &[(PASS, 2), (STEP, 1), (STEP, 2), (PASS, 2)]);
}
