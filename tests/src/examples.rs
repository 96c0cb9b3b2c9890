//! The shipped examples, with their policies as files: a test does not build again what the build script has
//! built.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::guests;

/// The shipped examples.
pub const ALL: [&str; 7] = [
    "capa-tenancy",
    "capv-machine",
    "everything",
    "mcm-machine",
    "orbiter-upgrade",
    "rug-router",
    "two-teams",
];

/// The folder of an example.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name)
}

/// A copy of an example's manifests, in which `crate: ../../policies/a-policy` is `file: a_policy.wasm`, and that file.
///
/// # Panics
/// If there is no such example, or it names a policy that the build script does not build.
pub fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(source(name)).expect("the example is there") {
        let path = entry.expect("an entry").path();
        let Some(file) = path
            .file_name()
            .filter(|_| path.extension().is_some_and(|e| e == "yaml"))
        else {
            continue;
        };
        let text = std::fs::read_to_string(&path).expect("the example is readable");
        let lines: Vec<String> = text.lines().map(|line| with_file(line, folder.path())).collect();
        std::fs::write(folder.path().join(file), lines.join("\n")).expect("written");
    }
    folder
}

/// Such a copy, in whose manifests these texts are replaced.
///
/// # Panics
/// As [`copy`], and if no manifest has one of the texts.
pub fn copy_with(name: &str, replaced: &[(&str, &str)]) -> TempDir {
    let folder = copy(name);
    for (from, to) in replaced {
        let count: usize = manifests(folder.path())
            .map(|file| replace(&file, from, to))
            .sum();
        assert!(count > 0, "no manifest has {from}");
    }
    folder
}

/// The manifests in a folder.
fn manifests(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = std::fs::read_dir(folder).expect("the example");
    let paths = files.map(|file| file.expect("an entry").path());
    // Components are no text.
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
}

/// How often a file had the text.
fn replace(file: &Path, from: &str, to: &str) -> usize {
    let text = std::fs::read_to_string(file).expect("a manifest");
    std::fs::write(file, text.replace(from, to)).expect("written");
    text.matches(from).count()
}

/// A line of a manifest; where it names a crate, its component is put into the folder and named instead.
fn with_file(line: &str, folder: &Path) -> String {
    let policy = line.split_once("crate: ../../policies/");
    let policy = policy.map(|(before, policy)| (before, policy.trim().to_owned()));
    let driver = line.split_once("crate: ../../host/drivers/");
    let driver = driver.map(|(before, driver)| (before, format!("polity-driver-{}", driver.trim())));
    let Some((before, package)) = policy.or(driver) else {
        return line.to_owned();
    };
    let file = format!("{}.wasm", package.replace('-', "_"));
    std::fs::copy(guests::folder().join(&file), folder.join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    format!("{before}file: {file}")
}
