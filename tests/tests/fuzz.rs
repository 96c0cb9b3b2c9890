//! The fuzz targets on every run, with the stored seeds and a fixed number of generated inputs. libFuzzer
//! does the long runs; see `tests/README.md`.

use std::path::{Path, PathBuf};

use polity_tests::fuzz::TARGETS;
use polity_tests::simulation::seed::Chance;

/// Made inputs of each target.
const MADE: [(&str, u64); 6] = [
    ("api", 400),
    ("files", 300),
    ("json", 4_000),
    ("loader", 60),
    ("policy", 400),
    ("response", 2_000),
];
/// Bytes of a made input.
const LONGEST: u64 = 600;

/// The seeds of a target, in the order of their names.
fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut seeds: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} holds no seeds", folder.display());
    seeds
}

/// Runs a target: it names an input that it panics with.
fn run(name: &str) {
    let (_, target) = TARGETS
        .into_iter()
        .find(|(known, _)| *known == name)
        .expect("a target");
    let (_, count) = MADE
        .into_iter()
        .find(|(known, _)| *known == name)
        .expect("a count");
    let checked = |input: &[u8], what: &str| {
        let ran = std::panic::catch_unwind(|| target(input));
        assert!(ran.is_ok(), "{name} panics with {what}: {}", input.escape_ascii());
    };
    let seeds = seeds(name);
    for seed in &seeds {
        checked(&std::fs::read(seed).expect("a seed"), &seed.display().to_string());
    }
    for nth in 0..count {
        let mut chance = Chance::new(nth, 7);
        let mut input: Vec<u8> = (0..chance.between(0, LONGEST))
            .map(|_| chance.draw().to_le_bytes()[0])
            .collect();
        // Half of them are seeds with a few bytes changed.
        if chance.one_in(500) {
            let seed = &seeds[chance.between(0, seeds.len() as u64 - 1) as usize];
            input = std::fs::read(seed).expect("a seed");
            for _ in 0..chance.between(1, 8) {
                let at = chance.between(0, input.len() as u64) as usize;
                let byte = chance.draw().to_le_bytes()[0];
                match input.get_mut(at) {
                    Some(old) => *old = byte,
                    None => input.push(byte),
                }
            }
        }
        checked(&input, &format!("made input {nth}"));
    }
}

#[test]
fn requests_to_the_embedded_api() {
    run("api");
}

#[test]
fn manifests_scenarios_and_recordings() {
    run("files");
}

#[test]
fn patches_selectors_and_projections() {
    run("json");
}

#[test]
fn bytes_for_the_loader() {
    run("loader");
}

#[test]
fn policies_that_say_anything() {
    run("policy");
}

#[test]
fn bodies_of_responses() {
    run("response");
}
