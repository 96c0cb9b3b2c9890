//! A root folder that holds one program and nothing else, as an image that is made from nothing does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Enters the root, with the folders that a container runtime mounts into every container.
const ENTER: &str = "
    set -e
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    for folder in dev proc; do mount --rbind \"/$folder\" \"$0/$folder\"; done
    exec chroot \"$0\" /polity \"$@\"
";

/// A root folder that holds a program as `/polity`, its loader and its libraries, and an empty `/tmp`.
pub struct EmptyRoot {
    folder: TempDir,
}

impl EmptyRoot {
    /// Makes the root folder of a program.
    ///
    /// # Panics
    /// The program cannot be copied, or `ldd` does not say which libraries it needs.
    pub fn of(program: &Path) -> Self {
        let root = EmptyRoot {
            folder: tempfile::tempdir().expect("a folder"),
        };
        for folder in ["dev", "proc", "tmp"] {
            fs::create_dir(root.path(folder)).expect("a folder");
        }
        root.copy(program, "polity");
        let libraries = Command::new("ldd").arg(program).output().expect("ldd runs");
        // A static program has none, and ldd says so by its status.
        for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
            if word.starts_with('/') {
                root.copy(Path::new(word), word);
            }
        }
        root
    }

    /// Where a path of the root folder is outside of it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside.trim_start_matches('/'))
    }

    /// The command that runs the program with this folder as its root and without environment variables. Killing
    /// the process kills the program.
    pub fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", ENTER]);
        command.arg(self.folder.path()).env_clear();
        command
    }

    /// A link where that is possible: the host is large.
    fn copy(&self, source: &Path, inside: &str) {
        let target = self.path(inside);
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        let source = source.canonicalize().expect("a file");
        if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target).expect("copied");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_an_empty_root_sees_itself_and_its_libraries() {
        let root = EmptyRoot::of(Path::new("/bin/ls"));
        let listed = root.command().args(["/", "/tmp"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&listed.stderr);
        assert!(listed.status.success(), "{said}");
        let listed = String::from_utf8(listed.stdout).expect("text");
        let of_root = listed.split_whitespace();
        let others = of_root
            .filter(|name| !["/:", "/tmp:", "dev", "lib", "lib64", "polity", "proc", "tmp"].contains(name));
        assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
        assert!(listed.contains("polity"), "{listed}");
        assert_eq!(
            fs::read_dir(root.path("proc")).expect("a folder").count(),
            0,
            "mounted for the program alone"
        );
    }
}
