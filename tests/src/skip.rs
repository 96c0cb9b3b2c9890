//! Skips a test that this machine cannot run, and prints the reason.

use std::fmt;
use std::io::{self, Write as _};
use std::thread;

/// The exit code of `tests/assets/python`, and of programs that run it, if Python is missing or too old.
pub(crate) const NO_PYTHON: i32 = 3;

/// Why a test cannot run here.
///
/// ```no_run
/// # use polity_tests::kubernetes::Assets;
/// let assets = match Assets::find() {
///     Ok(assets) => assets,
///     Err(skip) => return skip.print(),
/// };
/// ```
#[derive(Debug, Clone)]
pub struct Skip {
    reason: String,
}

impl Skip {
    /// A test that needs what this machine does not have.
    ///
    /// # Panics
    /// Instead of skipping, when `POLITY_NO_SKIP=1`.
    pub fn because(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let forbidden = std::env::var_os("POLITY_NO_SKIP").is_some_and(|set| set == "1");
        assert!(!forbidden, "POLITY_NO_SKIP=1, but {reason}");
        Skip { reason }
    }

    /// Prints `skipped: TEST: why`, past the capture that hides what a passing test prints.
    pub fn print(&self) {
        let current = thread::current();
        let test = current.name().unwrap_or("a test");
        let _ = writeln!(io::stderr(), "skipped: {test}: {self}");
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    #[test]
    #[ignore = "the tests below run it"]
    fn needs_the_moon() {
        Skip::because("there is no moon").print();
    }

    fn run(no_skip: &str) -> Output {
        let mut test = Command::new(std::env::current_exe().expect("this test's file"));
        test.args(["--ignored", "--exact", "skip::tests::needs_the_moon"])
            .env("POLITY_NO_SKIP", no_skip);
        test.output().expect("it runs")
    }

    #[test]
    fn a_skip_is_seen_although_the_test_passes() {
        let run = run("0");
        assert!(run.status.success());
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(said, "skipped: skip::tests::needs_the_moon: there is no moon\n");
    }

    #[test]
    fn where_nothing_may_be_skipped_the_test_fails() {
        let run = run("1");
        assert!(!run.status.success());
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(said.contains("POLITY_NO_SKIP=1, but there is no moon"), "{said}");
    }
}
