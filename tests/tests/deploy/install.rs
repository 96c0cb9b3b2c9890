//! The chapter "Install" of the README, followed word by word on a real API server: its files are written and its commands
//! typed into a shell, and in the end a machine runs on a vCenter, which is a simulator.
//!
//! What is not as on the page:
//!
//! - Nothing is pushed to a registry, and there is no kubelet. The host is a process, with the arguments, variables, account,
//!   volumes and empty root folder of the pod that stands in the cluster.
//! - The address of the vCenter is that of the simulator. `ca.crt`, which its reader has, is its authority's.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use polity_tests::kubernetes::Assets;
use polity_tests::skip::Skip;
use polity_tests::tools::Tools;
use polity_tests::vcsim::Vcsim;

use crate::deploy::rendered::{BASE, copy};
use crate::deploy::site::{Place, Site};
use crate::page::{Page, command, repository, succeeds};
use crate::vcenter::certified;

const PAGE: Page = Page(include_str!("../../../README.md"));
const VCENTER: &str = "vcenter.example.com";
const AT: Place<'_> = Place {
    namespace: "polity-system",
    name: "polity",
};

/// A reader of the page: a cluster, a vCenter, a folder in which all commands are typed, and programs.
struct Reader {
    site: Site,
    /// It runs as long as the reader does.
    _vcenter: Vcsim,
    place: tempfile::TempDir,
}

impl Reader {
    fn begin() -> Result<Reader, Skip> {
        let (assets, tools) = (Assets::find()?, Tools::find()?);
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let [authority, certificate, key] = certified();
        for (name, text) in [
            ("ca.crt", authority),
            ("server.crt", certificate),
            ("server.key", key),
        ] {
            fs::write(at(name), text).expect("written");
        }
        let [certificate, key] = ["server.crt", "server.key"].map(|name| at(name).display().to_string());
        let vcenter = Vcsim::start(&["-cert", &certificate, "-key", &key])?;
        let programs = [
            ("polity", env!("CARGO_BIN_EXE_polity-under-test").into()),
            ("kubectl", assets.program("kubectl")),
            ("helm", tools.program("helm")),
        ];
        fs::create_dir(at("bin")).expect("created");
        for (name, program) in programs {
            symlink(program, at("bin").join(name)).expect("linked");
        }
        // Kustomize takes no folder through a link.
        copy(BASE, &at("host/deploy/base"));
        for name in ["policies", "host/drivers", "host/deploy/chart"] {
            symlink(repository().join(name), at(name)).expect("linked");
        }
        PAGE.write_files(place.path());
        let connection = fs::read_to_string(at("connection.yaml")).expect("the page has it");
        assert!(connection.contains(VCENTER), "{connection}");
        fs::write(
            at("connection.yaml"),
            connection.replace(VCENTER, vcenter.address()),
        )
        .expect("written");
        let site = Site::empty(&assets);
        Ok(Reader {
            site,
            _vcenter: vcenter,
            place,
        })
    }

    /// Types the commands of the page with this mark, and waits for their end.
    fn types(&self, mark: &str) -> String {
        self.types_line(&PAGE.commands(&format!("install: {mark}")))
    }

    fn types_line(&self, commands: &str) -> String {
        let mut shell: Command = command("bash", self.place.path());
        // What a test that fails has to say.
        let shown = "trap 'kubectl get cloudconnections,policybindings,machines -A -o yaml >&2' ERR\n";
        shell.args(["-euo", "pipefail", "-c", &format!("{shown}{commands}")]);
        let found = std::env::var_os("PATH").unwrap_or_default();
        let programs = std::iter::once(self.place.path().join("bin")).chain(std::env::split_paths(&found));
        shell.env("PATH", std::env::join_paths(programs).expect("paths"));
        shell.env("KUBECONFIG", self.site.server.kubeconfig());
        // What Helm and kubectl keep.
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            shell.env(variable, self.place.path().join("helm"));
        }
        shell.env("KUBECACHEDIR", self.place.path().join("cache"));
        succeeds(shell)
    }

    /// The chapter, with this way to install the host.
    fn follows(&self, way: &str) {
        let built = self.types("build");
        assert!(built.contains("capv-machine.wasm.gz"), "{built}");
        self.types(way);
        let mut host = self.site.host(AT);
        self.types("cloud");
        let said = self.types("machines");
        let machine = said.lines().last().expect("a machine");
        let columns: Vec<&str> = machine.split_whitespace().collect();
        assert_eq!(columns[..3], ["team-a", "web-1", "Running"], "{said}");
        assert!(machine.contains("[\"10.0."), "it has an address: {said}");
        let why = succeeds(self.site.in_pod(&["explain", "Machine", "team-a/web-1"]));
        for edge in ["The machine has no VM: ", "The VM has addresses: "] {
            assert!(why.contains(edge), "{edge:?} is missing: {why}");
        }
        self.types_line("polity status capv-machine");
        host.terminate();
    }
}

#[test]
fn who_follows_the_readme_with_helm_has_a_machine_that_runs() {
    match Reader::begin() {
        Ok(reader) => {
            reader.follows("helm");
            reader.types_line("helm uninstall polity -n polity-system");
            let left = reader.types_line("kubectl get deployments,policybindings -A -o name");
            assert_eq!(left.trim(), "policybinding.polity.dev/capv-machine");
        }
        Err(skip) => skip.print(),
    }
}

#[test]
fn who_follows_the_readme_with_kustomize_has_a_machine_that_runs() {
    match Reader::begin() {
        Ok(reader) => reader.follows("kustomize"),
        Err(skip) => skip.print(),
    }
}
