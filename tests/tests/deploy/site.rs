//! A cluster with an API server and no kubelet, and a host that runs as a pod of it would.

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

pub const MACHINE: &str = "
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

pub const BINDING: &str = "
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
pub struct Site {
    pub server: KubeServer,
    pub folder: tempfile::TempDir,
}

/// Where a host is installed.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub namespace: &'a str,
    /// Of its Deployment, its account and its lease.
    pub name: &'a str,
}

impl Site {
    /// With the definitions of kinds, that of machines too.
    pub fn start(assets: &Assets) -> Site {
        let server = KubeServer::start(assets, tempfile::tempdir().expect("a folder"));
        let folder = tempfile::tempdir().expect("a folder");
        let site = Site { server, folder };
        let policy = guests::folder().join("capv_machine.wasm");
        site.apply(&polity(&["crds"], &policy), &[]);
        site.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]);
        site
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        succeeded(self.server.kubectl(arguments))
    }

    pub fn apply(&self, manifests: &str, more: &[&str]) -> String {
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

    /// Gives a host what the binding needs, by `polity rbac`, under the name `NAME-bindings`.
    pub fn allow(&self, at: Place<'_>) {
        let binding = self.file("binding.yaml", BINDING);
        let name = format!("{}-bindings", at.name);
        let account = format!("{}/{}", at.namespace, at.name);
        let policies = guests::folder().display().to_string();
        let rights = [
            "rbac",
            "--lease",
            &account,
            "--service-account",
            &account,
            "--name",
            &name,
        ];
        self.apply(
            &polity(&[&rights[..], &["--policies", &policies]].concat(), &binding),
            &[],
        );
    }

    /// A machine is applied, and the host makes it run, as the holder of its lease until it is ended.
    pub fn runs_a_machine(&self, at: Place<'_>) {
        let mut host = self.host(at);
        self.apply(BINDING, &[]);
        self.apply(MACHINE, &[]);
        let machine = ["-n", "team-a", "machine/machine-01"];
        let running = ["wait", "--for=jsonpath={.status.phase}=Running", "--timeout=300s"];
        self.kubectl(&[&running[..], &machine].concat());
        let holder = [
            "get",
            "lease",
            at.name,
            "-n",
            at.namespace,
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ];
        assert!(!self.kubectl(&holder).is_empty());
        host.terminate();
        assert!(self.kubectl(&holder).is_empty(), "the lease is given up");
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("written");
        path
    }

    /// The account's files as a pod has them.
    fn account(&self, at: Place<'_>) -> PathBuf {
        let folder = self.folder.path().join("account");
        fs::create_dir(&folder).expect("a folder");
        let token = self.kubectl(&["create", "token", at.name, "-n", at.namespace]);
        fs::write(folder.join("token"), token.trim()).expect("written");
        fs::write(folder.join("namespace"), at.namespace).expect("written");
        let authority = self.server.data().join("pki/apiserver.crt");
        fs::copy(authority, folder.join("ca.crt")).expect("copied");
        folder
    }

    /// The arguments of the Deployment that stands in the cluster, with folders of this machine for its volumes.
    fn arguments(&self, at: Place<'_>) -> Vec<String> {
        let deployment = self.kubectl(&["get", "deployment", at.name, "-n", at.namespace, "-o", "json"]);
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

    fn host(&self, at: Place<'_>) -> Host {
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
            .args(self.arguments(at));
        command.env_clear().envs([
            ("KUBERNETES_SERVICE_HOST", address),
            ("KUBERNETES_SERVICE_PORT", port),
        ]);
        command
            .env("ACCOUNT", self.account(at))
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

pub fn succeeded(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

pub fn polity(arguments: &[&str], file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
    succeeded(command.args(arguments).arg(file).output().expect("it runs"))
}
