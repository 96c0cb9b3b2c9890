//! Limits the size of a policy: a person must be able to understand it in one sitting.

use std::path::{Path, PathBuf};

/// Lines of a policy without its table of cases, not counting those that are empty or hold nothing but a comment.
const MOST: usize = 1_020;

#[test]
fn no_policy_is_longer_without_its_cases_than_a_person_reads_in_one_sitting() {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let mut seen = 0;
    for policy in entries(&policies) {
        // What policies share may be as large as it needs.
        if policy.ends_with("sdk") || !policy.join("src").is_dir() {
            continue;
        }
        let lines = lines_of(&policy.join("src"));
        assert!(lines > 0 && lines <= MOST, "{}: {lines} lines", policy.display());
        seen += 1;
    }
    assert!(seen >= 10, "{seen} policies");
}

fn lines_of(path: &Path) -> usize {
    if path.is_dir() {
        let parts = entries(path);
        let parts = parts.iter().filter(|part| !part.ends_with("cases"));
        return parts.map(|part| lines_of(part)).sum();
    }
    if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("cases.rs") {
        return 0;
    }
    let text = std::fs::read_to_string(path).expect("a source file");
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
