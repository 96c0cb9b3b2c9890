//! A page of documentation as a reader follows it: its files and commands. A page may be a whole crate, which tests build
//! outside of this repository.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use polity_tests::guests;

/// Where a real author takes packages from.
const SOURCE: &str = "git = \"https://polity.dev/polity\"";

/// The text of a page.
pub(crate) struct Page(pub(crate) &'static str);

impl Page {
    /// The lines of the fenced block that follows a line.
    fn block(&self, after: &str) -> String {
        let (_, rest) = self.0.split_once(&format!("\n{after}\n")).expect(after);
        let mut lines = rest.lines().skip_while(|line| !line.starts_with("```"));
        let fence = lines.next().expect("a block").trim_end_matches(|c| c != '`');
        let lines = lines.take_while(|line| *line != fence);
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The commands of the block with this mark, as they are typed.
    pub(crate) fn commands(&self, mark: &str) -> String {
        self.block(&format!("<!-- {mark} -->")).trim().to_owned()
    }

    /// The files of the page: each is named by a line of its own, in backquotes.
    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        let names = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix('`')?.strip_suffix('`'))
            .filter(|name| !name.contains('`'));
        names
            .map(|name| (name, self.block(&format!("`{name}`"))))
            .collect()
    }

    /// Writes the files of the page.
    pub(crate) fn write_files(&self, folder: &Path) {
        for (name, text) in self.files() {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, text).expect("written");
        }
    }

    /// Writes the crate as its author has it, but for where these packages are taken from: here it is this working
    /// copy.
    pub(crate) fn write(&self, folder: &Path, packages: &[(&str, &str)]) {
        self.write_files(folder);
        let manifest = folder.join("Cargo.toml");
        let mut text = fs::read_to_string(&manifest).expect("the page has it");
        for (package, place) in packages {
            let from = format!("{package} = {{ {SOURCE} }}");
            assert!(text.contains(&from), "the page's Cargo.toml has no {from}");
            let path = repository().join(place);
            text = text.replace(&from, &format!("{package} = {{ path = {path:?} }}"));
        }
        fs::write(manifest, text).expect("written");
        // The same versions of everything else, so that nothing has to be asked for.
        fs::copy(repository().join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    }
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder")
}

/// A command that knows nothing of the cargo that runs this test but where its registry is.
pub(crate) fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let cargos = text.starts_with("CARGO") && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*text);
        if cargos || text == "RUSTFLAGS" || text.starts_with("RUSTC") {
            command.env_remove(&name);
        }
    }
    // Built once, edited and debugged never.
    command
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    // Of the toolchain that the repository names: a folder outside has none.
    command.env("CARGO_TARGET_DIR", guests::target());
    command
}

/// Commands, as a shell reads them in a folder. Programs are found in `bin` first.
pub(crate) fn shell(commands: &str, folder: &Path, bin: &Path) -> Command {
    let mut shell = command("bash", folder);
    shell.args(["-euo", "pipefail", "-c", commands]);
    let found = std::env::var_os("PATH").unwrap_or_default();
    let programs = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&found));
    shell.env("PATH", std::env::join_paths(programs).expect("paths"));
    shell
}

/// What a command printed that ends well.
pub(crate) fn succeeds(mut command: Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    assert!(status.success(), "{command:?} ended with {status}:\n{said}");
    said
}

/// A program that runs beside, ended when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
