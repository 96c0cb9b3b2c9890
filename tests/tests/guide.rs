//! A driver outside this repository: the crate of the guide `host/drivers/sdk/README.md`, written into a folder of its
//! own. A shell runs the commands of the guide: the driver is tested, built, and creates machines in the rack of the
//! guide.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use polity_core::contract::Kind;
use polity_tests::guests;
use polity_tests::kubernetes::Assets;
use polity_tests::skip::Skip;
use tempfile::TempDir;

use crate::page::{Page, Running, repository, shell, succeeds};
use crate::process::{connected, has_none_of, recorded, until};

const PAGE: Page = Page(include_str!("../../host/drivers/sdk/README.md"));
/// The port of the page's rack.
const PORT: &str = "8090";
/// What nobody but the host may see: the token of the rack, and what a machine boots with.
const SECRETS: [&str; 2] = ["rack-t0ken-of-the-guide", "#cloud-config"];

/// A reader of the page: a folder with the crate `rack` and, as a link, the clone `polity`; the programs.
struct Reader {
    place: TempDir,
}

impl Reader {
    fn begin(assets: &Assets) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("bin")).expect("created");
        symlink(env!("CARGO_BIN_EXE_polity-under-test"), at("bin/polity")).expect("linked");
        symlink(assets.program("kubectl"), at("bin/kubectl")).expect("linked");
        symlink(repository(), at("polity")).expect("linked");
        fs::create_dir(at("rack")).expect("created");
        symlink(guests::target(), at("rack/target")).expect("linked");
        PAGE.write(&at("rack"), &[("polity-driver-sdk", "host/drivers/sdk")]);
        Reader { place }
    }

    /// The folder in which all commands are typed.
    fn folder(&self) -> PathBuf {
        self.place.path().join("rack")
    }

    /// Commands, as a shell reads them.
    fn typed(&self, commands: &str) -> Command {
        let mut shell = shell(commands, &self.folder(), &self.place.path().join("bin"));
        // The cache must not be in the home of the user who runs this test.
        shell.env("KUBECACHEDIR", self.place.path().join("cache"));
        // The page names files below `target`.
        shell.env_remove("CARGO_TARGET_DIR");
        shell
    }

    /// Types the commands of the page with this mark, and waits for their end.
    fn types(&self, mark: &str) -> String {
        succeeds(self.typed(&PAGE.commands(mark)))
    }

    /// Types a command that goes on, without a shell in between.
    fn starts(&self, line: &str, stdout: Stdio) -> Running {
        let mut command = self.typed(&format!("exec {line}"));
        let command = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        Running(command.spawn().expect("it starts"))
    }

    /// Starts the rack on any free port, and tells the connection.
    fn starts_rack(&self) -> (Running, BufReader<ChildStdout>) {
        let line = PAGE.commands("rack");
        assert!(line.contains(PORT), "{line}");
        let mut rack = self.starts(&line.replace(PORT, "0"), Stdio::piped());
        let mut printed = BufReader::new(rack.0.stdout.take().expect("it is piped"));
        let mut first = String::new();
        printed.read_line(&mut first).expect("text");
        let (_, port) = first.trim().rsplit_once(':').expect("it listens");
        self.edit("connection.yaml", |text| {
            text.replace(&format!(":{PORT}"), &format!(":{port}"))
        });
        (rack, printed)
    }

    /// Puts the policies that the build script of these tests has built in place of the crates of the page.
    fn takes_built_policies(&self) {
        self.edit("bindings.yaml", |text| {
            let lines = text.lines().map(|line| built(line, &self.folder().join("run")));
            lines.collect::<Vec<String>>().join("\n")
        });
    }

    fn edit(&self, manifest: &str, change: impl Fn(&str) -> String) {
        let path = self.folder().join("run").join(manifest);
        let text = fs::read_to_string(&path).expect("a manifest");
        let changed = change(&text);
        assert_ne!(text, changed, "{manifest}");
        fs::write(path, changed).expect("written");
    }
}

/// A line of a manifest; a crate of the clone becomes the file that is built of it.
fn built(line: &str, folder: &Path) -> String {
    let Some((before, policy)) = line.split_once("crate: ../../polity/policies/") else {
        return line.to_owned();
    };
    let file = format!("{}.wasm", policy.trim().replace('-', "_"));
    fs::copy(guests::folder().join(&file), folder.join(&file)).expect("copied");
    format!("{before}file: {file}")
}

/// A program that the page needs and brings not.
fn python() -> Result<(), Skip> {
    let found = Command::new("python3").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        Ok(())
    } else {
        Err(Skip::because("python3, which runs the rack, is not here"))
    }
}

#[tokio::test]
async fn the_driver_of_the_readme_runs_a_machine_and_a_lost_answer_makes_no_second_one() {
    let assets = match python().and_then(|()| Assets::find()) {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let reader = Reader::begin(&assets);
    let tested = reader.types("test");
    assert!(tested.contains("4 passed"), "{tested}");
    reader.types("build");
    reader.types("bindings");
    reader.takes_built_policies();
    let (rack, printed) = reader.starts_rack();

    let mut host = reader.starts(&PAGE.commands("run"), Stdio::null());
    let cluster = connected(&mut host.0, &reader.folder().join("polity.kubeconfig")).await;
    let machine = Kind {
        api_version: "mcm.polity.dev/v1alpha1".into(),
        kind: "Machine".into(),
    };
    let waits = |machines: &[serde_json::Value]| {
        let machine = machines.first().map(|machine| &machine["status"]);
        machine.is_some_and(|status| {
            status["providerID"].is_string() && status["currentStatus"]["phase"] == "Pending"
        })
    };
    let machines = until(&mut host.0, &cluster, &machine, waits).await;
    assert_eq!(machines[0]["status"]["providerID"], "rack:///m-1");
    let explained = reader.types("explain");
    assert!(explained.contains("MCM-C14"), "{explained}");

    let replayed = reader.types("replay");
    assert!(replayed.contains(" as recorded, 0 otherwise"), "{replayed}");
    assert!(!replayed.contains("0 operations"), "{replayed}");

    reader.types("delete");
    until(&mut host.0, &cluster, &machine, <[serde_json::Value]>::is_empty).await;
    drop(host);
    let recorded = recorded(&reader.folder().join("kept"));
    assert!(recorded.contains("machine.create"));
    has_none_of(&recorded, &SECRETS);
    drop(rack);
    let changes: Vec<String> = printed
        .lines()
        .map_while(Result::ok)
        .filter(|line| !line.starts_with("GET "))
        .collect();
    assert_eq!(
        changes,
        ["POST /v1/machines lost m-1", "DELETE /v1/machines/m-1 204 "]
    );
}
