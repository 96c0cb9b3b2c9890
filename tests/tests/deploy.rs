//! What `host/deploy` installs, against a real API server: rendered, applied, and run with its own arguments, account and
//! token.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::Value;

/// Where a pod finds its service account. A host in a mount namespace of its own finds it there too.
const IN_A_POD: &str = "
    set -e
    mount -t tmpfs tmpfs /run
    mkdir -p /run/secrets/kubernetes.io
    ln -s \"$ACCOUNT\" /run/secrets/kubernetes.io/serviceaccount
    exec \"$@\"
";

const MACHINE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: capv.polity.dev/v1alpha1
kind: Machine
metadata: {name: machine-01, namespace: team-a}
spec:
  template: ubuntu-24.04
  numCPUs: 2
  memoryMiB: 4096
  network: {devices: [{networkName: vm-network, dhcp4: true}]}
";

const BINDING: &str = "
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: capv-machine}
spec:
  governs: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}
  policies:
    lifecycle: {file: capv_machine.wasm, configuration: {requeuePeriod: 1s, failureBackoff: 1s}}
  cloud: {name: sim}
  grants: [{cloud: ['vm.*', task.get]}]
";

/// A cluster, and what an administrator has at hand.
struct Site {
    server: KubeServer,
    folder: tempfile::TempDir,
}

impl Site {
    fn kubectl(&self, arguments: &[&str]) -> String {
        succeeded(self.server.kubectl(arguments))
    }

    fn apply(&self, manifests: &str, more: &[&str]) -> String {
        let mut kubectl = self.server.kubectl_command();
        kubectl.args(["apply", "-f", "-"]).args(more);
        kubectl
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut kubectl = kubectl.spawn().expect("kubectl runs");
        let mut input = kubectl.stdin.take().expect("its input");
        input.write_all(manifests.as_bytes()).expect("it reads");
        drop(input);
        succeeded(kubectl.wait_with_output().expect("it ends"))
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("written");
        path
    }

    /// The account's files as a pod has them.
    fn account(&self) -> PathBuf {
        let folder = self.folder.path().join("account");
        fs::create_dir(&folder).expect("a folder");
        let token = self.kubectl(&["create", "token", "polity", "-n", "polity-system"]);
        fs::write(folder.join("token"), token.trim()).expect("written");
        fs::write(folder.join("namespace"), "polity-system").expect("written");
        let authority = self.server.data().join("pki/apiserver.crt");
        fs::copy(authority, folder.join("ca.crt")).expect("copied");
        folder
    }

    /// The arguments of the Deployment that stands in the cluster, with folders of this machine for its volumes.
    fn arguments(&self) -> Vec<String> {
        let deployment = self.kubectl(&["get", "deployment", "polity", "-n", "polity-system", "-o", "json"]);
        let deployment: Value = serde_json::from_str(&deployment).expect("JSON");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().expect("arguments").iter();
        let data = self.folder.path().join("data");
        let here = |argument: &Value| match argument.as_str().expect("text") {
            "--policies=/policies" => format!("--policies={}", guests::folder().display()),
            "--data=/data" => format!("--data={}", data.display()),
            "--metrics-listen=0.0.0.0:9090" => "--metrics-listen=127.0.0.1:0".to_owned(),
            other => other.to_owned(),
        };
        arguments.map(here).collect()
    }

    fn host(&self) -> Host {
        let url = self.kubectl(&[
            "config",
            "view",
            "--minify",
            "-o",
            "jsonpath={.clusters[0].cluster.server}",
        ]);
        let (address, port) = url
            .trim_start_matches("https://")
            .split_once(':')
            .expect("a port");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", IN_A_POD, "sh"]);
        command
            .arg(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(self.arguments());
        command.env_clear().envs([
            ("KUBERNETES_SERVICE_HOST", address),
            ("KUBERNETES_SERVICE_PORT", port),
        ]);
        command
            .env("ACCOUNT", self.account())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("unshare runs");
        let lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("host: {line}"))
        });
        Host(child)
    }
}

/// Ended when dropped.
struct Host(Child);

impl Host {
    /// Ends as a pod does that is deleted.
    fn terminate(&mut self) {
        let kill = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn succeeded(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn polity(arguments: &[&str], file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    succeeded(command.args(arguments).arg(file).output().expect("it runs"))
}

#[test]
fn the_kustomize_base_runs_a_host_with_its_own_account_and_goes_without_a_trace() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site { server, folder };
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/deploy/base");
    let rendered = site.kubectl(&["kustomize", base]);

    site.apply(
        &polity(&["crds"], &guests::folder().join("capv_machine.wasm")),
        &[],
    );
    site.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]);
    // Namespaced objects are checked in their namespace, which a dry run does not make.
    site.apply(
        &fs::read_to_string(format!("{base}/namespace.yaml")).expect("read"),
        &[],
    );
    site.apply(&rendered, &["--dry-run=server"]);
    let applied = site.apply(&rendered, &[]);
    assert!(!applied.contains("Warning"), "{applied}");

    let binding = site.file("binding.yaml", BINDING);
    let folder = guests::folder().display().to_string();
    let rights = [
        "rbac",
        "--lease",
        "polity-system/polity",
        "--name",
        "polity-bindings",
        "--policies",
        &folder,
    ];
    site.apply(&polity(&rights, &binding), &[]);

    let mut host = site.host();
    site.apply(BINDING, &[]);
    site.apply(MACHINE, &[]);
    let running = "--for=jsonpath={.status.phase}=Running";
    site.kubectl(&[
        "wait",
        running,
        "-n",
        "team-a",
        "machine/machine-01",
        "--timeout=300s",
    ]);
    let holder = [
        "get",
        "lease",
        "polity",
        "-n",
        "polity-system",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert!(!site.kubectl(&holder).is_empty());
    host.terminate();
    assert!(site.kubectl(&holder).is_empty(), "the lease is given up");

    site.kubectl(&["delete", "-k", base, "--wait=false"]);
    // What the bindings needed came beside the base, and stays for whoever applied it.
    let kinds =
        "deployments,poddisruptionbudgets,networkpolicies,serviceaccounts,configmaps,roles,rolebindings";
    let left = site.kubectl(&["get", kinds, "-n", "polity-system", "-o", "name"]);
    let left: Vec<&str> = left
        .lines()
        .map(|line| line.rsplit('/').next().unwrap_or(line))
        .collect();
    assert_eq!(left, ["polity-bindings", "polity-bindings"]);
    let machine = ["get", "machine", "machine-01", "-n", "team-a", "-o", "name"];
    assert!(site.kubectl(&machine).contains("machine-01"));
}
