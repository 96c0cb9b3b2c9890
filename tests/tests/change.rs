//! The page `policies/sdk/CHANGE.md`: a shell types its commands, one after the other.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use polity_tests::kubernetes::Assets;
use polity_tests::{examples, guests};
use tempfile::TempDir;

use crate::page::{Page, Running, shell, succeeds};
use crate::process::LOOK_EVERY;
use crate::variants;

const PAGE: Page = Page(include_str!("../../policies/sdk/CHANGE.md"));
/// The policy of the page, and the name of its crate here: the folder in which it is built has one of that name.
const POLICY: &str = "capv-machine";
const NAME: &str = "capv-of-the-page";

/// A reader of the page: a folder with the policy, the example and the programs.
struct Reader {
    place: TempDir,
    _example: TempDir,
}

impl Reader {
    fn begin(assets: &Assets) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        for folder in ["bin", "examples"] {
            fs::create_dir(at(folder)).expect("created");
        }
        symlink(env!("CARGO_BIN_EXE_polity-under-test"), at("bin/polity")).expect("linked");
        symlink(assets.program("kubectl"), at("bin/kubectl")).expect("linked");
        let example = examples::copy(POLICY);
        symlink(example.path(), at("examples").join(POLICY)).expect("linked");
        variants::write_policy(place.path(), POLICY, NAME);
        PAGE.write_files(place.path());
        let binding = at("deployed/binding.yaml");
        let text = fs::read_to_string(&binding).expect("the page has it");
        fs::write(
            &binding,
            text.replace("file: capv-machine", &format!("file: {NAME}")),
        )
        .expect("written");
        Reader {
            place,
            _example: example,
        }
    }

    /// Commands, as a shell reads them.
    fn typed(&self, commands: &str) -> Command {
        let commands = commands.replace("deployed/capv-machine", &format!("deployed/{NAME}"));
        let mut shell = shell(&commands, self.place.path(), &self.place.path().join("bin"));
        // The cache must not be in the home of the user who runs this test.
        shell.env("KUBECACHEDIR", self.place.path().join("cache"));
        // What is built does not lie among the components of other tests.
        shell.env("CARGO_BUILD_BUILD_DIR", guests::target());
        shell.env("CARGO_TARGET_DIR", self.place.path().join("target"));
        shell.env(
            "RUSTC_WORKSPACE_WRAPPER",
            variants::unoptimised(self.place.path()),
        );
        shell
    }

    /// Types the commands of the page with this mark, and waits for their end.
    fn types(&self, mark: &str) -> String {
        succeeds(self.typed(&PAGE.commands(mark)))
    }

    /// Starts the host of the page, and waits until it has applied its manifests.
    fn starts(&self) -> Running {
        let mut host = self.typed(&format!("exec {}", PAGE.commands("host")));
        let host = host
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut host = Running(host.spawn().expect("it starts"));
        let looks = "kubectl --kubeconfig polity.kubeconfig --namespace team-a get machine machine-02";
        while !self.typed(looks).output().expect("it runs").status.success() {
            let ended = host.0.try_wait().expect("a child");
            assert!(ended.is_none(), "the host ended: {ended:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        host
    }
}

#[test]
fn a_reader_of_the_page_sees_what_a_change_would_do_and_rolls_it_out() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let reader = Reader::begin(&assets);
    assert!(reader.types("record").contains("everything is settled"));
    let again = reader.types("again");
    assert!(again.starts_with("the recorded policies: 0 of "), "{again}");
    let slower = reader.types("slower");
    let shown = "lifecycle next: after 20s → after 1m";
    assert_eq!(slower.matches("lifecycle next: ").count(), 1, "{slower}");
    assert!(slower.contains(shown) && PAGE.0.contains(shown), "{slower}");
    let explained = reader.types("explain");
    for step in [
        "    step    1 of lifecycle knew 0 answers and wanted:\n    ",
        "answers and decided\n",
    ] {
        assert!(explained.contains(step), "{explained}");
    }

    reader.types("build");
    let mut host = reader.starts();
    reader.types("delete");
    let soft = reader.types("soft");
    let shown = "1  lifecycle acts, which was not done: vm.reconfigure {\"id\":\"vm-*\",\"metadata\":\"shutdown: requested\"}";
    assert!(soft.contains(shown) && PAGE.0.contains(shown), "{soft}");
    assert_eq!(soft.matches("  lifecycle ").count(), 1, "{soft}");
    let ci = reader.types("ci");
    assert!(ci.contains(": 0 of "), "{ci}");
    let played = reader.types("test");
    assert!(played.contains("1 scenario: 1 hold, 0 failed"), "{played}");
    let swapped = reader.types("swap");
    let at = |text: &str| {
        swapped
            .find(text)
            .unwrap_or_else(|| panic!("no {text}: {swapped}"))
    };
    assert!(
        at("shutdown: requested") < at("act     vm.power-off"),
        "{swapped}"
    );
    assert!(
        host.0.try_wait().expect("a child").is_none(),
        "it was not restarted"
    );
}

#[test]
fn the_change_of_the_page_is_the_one_that_is_swapped_in_mid_flight() {
    let (_, from, to) = variants::SOFT.changes[0];
    for line in to.strip_suffix(from).expect("it begins with what is new").lines() {
        assert!(PAGE.0.contains(&format!("\n+{line}\n")), "{line}");
    }
}
