//! The deterministic core of Polity: every event goes in, and everything that must be done comes out.
//!
//! It has no clock, no I/O, no randomness and no threads: the same inputs give the same outputs, byte for byte. The
//! engine of the host turns [`call::Call`]s into futures and their [`call::Reply`]s into inputs. The simulation does
//! the same with a seeded loop instead of an executor.
//!
//! # Floors
//!
//! ```text
//! controller   keys, passes, wake: bookkeeping
//! reconcile    one pass as data: reads `shared`, changes nothing; a file a phase
//! shared       what all passes share: cache, lease, locks, calls
//! the others   contract, objects, grants, records: leaves, pure
//! ```
//!
//! A floor uses what is below it, never what is above.

pub mod binding;
pub mod call;
pub mod catalogue;
pub mod controller;
pub mod entry;
pub mod fair;
pub mod fault;
pub mod grants;
pub mod key;
pub mod merge;
pub mod object;
mod pending;
pub mod projection;
mod reconcile;
pub mod record;
pub mod render;
pub mod retry;
pub mod scope;
pub mod selection;
mod shared;
pub mod time;
mod tree;
pub mod worker;

/// The contract with policies. It is a crate of its own.
pub use polity_contract as contract;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    const FLOORS: [&str; 3] = ["shared", "reconcile", "controller"];
    /// The files of a folder and of those in it, but for tests.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_test = |path: &PathBuf| {
            ["tests", "fixture"]
                .iter()
                .any(|name| path.file_stem().is_some_and(|stem| stem == *name))
        };
        let each = paths
            .filter(|path| !is_test(path))
            .map(|path| if path.is_dir() { files(&path) } else { vec![path] });
        each.collect::<Vec<_>>().concat()
    }

    /// What stands in a file before its tests.
    fn code(file: &Path) -> String {
        let text = std::fs::read_to_string(file).expect("a file");
        let code = text.split("#[cfg(test)]\nmod tests {").next();
        code.expect("the code before its tests").to_owned()
    }

    #[test]
    fn no_floor_uses_one_above_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let all = files(&root);
        assert!(all.len() > 40, "{} files", all.len());
        let mut up = Vec::new();
        for file in all {
            let code = code(&file);
            let inside = file.strip_prefix(&root).expect("below it").with_extension("");
            let own = inside
                .iter()
                .next()
                .and_then(|name| name.to_str())
                .expect("a name");
            let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
            let above = FLOORS.iter().filter(|other| floor(other) > floor(own));
            let used = above.filter(|other| own != "lib" && code.contains(&format!("crate::{other}")));
            up.extend(used.map(|other| format!("{} uses {other}", inside.display())));
        }
        assert_eq!(up, [""; 0]);
    }

    /// Whether the code of a module says this path.
    fn says(folder: &Path, module: &str, path: &str) -> bool {
        let inside = folder.join(module);
        let below = if inside.is_dir() {
            files(&inside)
        } else {
            Vec::new()
        };
        let mut all = below.into_iter().chain([inside.with_extension("rs")]);
        all.any(|file| {
            let code = code(&file);
            let mut after = code.split(path).skip(1);
            after.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        })
    }

    #[test]
    fn no_modules_of_a_folder_use_each_other_in_a_circle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (folder, path) in [
            ("reconcile", "crate::reconcile"),
            ("shared", "crate::shared"),
            ("grants", "crate::grants"),
            ("worker", "crate::worker"),
        ] {
            let folder = root.join(folder);
            let entries = std::fs::read_dir(&folder).expect("a folder");
            let names = entries.map(|entry| entry.expect("an entry").path().with_extension(""));
            let names = names.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
            let mut left: std::collections::BTreeSet<String> =
                names.filter(|name| name != "fixture").collect();
            let uses = |one: &str, other: &str| {
                one != other
                    && (says(&folder, one, &format!("{path}::{other}"))
                        || says(&folder, one, &format!("use super::{other}")))
            };
            // Those that use none of the others are no part of a circle.
            while let Some(free) = left
                .iter()
                .find(|one| !left.iter().any(|other| uses(one, other)))
                .cloned()
            {
                left.remove(&free);
            }
            assert_eq!(left.iter().collect::<Vec<_>>(), [""; 0], "{}", folder.display());
        }
    }

    #[test]
    fn the_page_that_leads_through_a_pass_names_what_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(root.join("PASS.md")).expect("the page");
        // Outside of code blocks, every second part is between backquotes.
        let prose = page.split("```").step_by(2).collect::<String>();
        let (mut text, mut names) = (String::new(), 0);
        for word in prose.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                text = std::fs::read_to_string(root.join("src").join(word)).expect(word);
            } else if !word.contains(['/', '.']) {
                let is_there = ["fn", "enum", "struct"].iter().any(|kind| {
                    let named = format!("{kind} {word}");
                    let mut rest = text.split(&named).skip(1);
                    rest.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
                });
                assert!(is_there, "{word} is not where the page says");
                names += 1;
            }
        }
        assert!(names > 40, "{names} names");
    }
}
