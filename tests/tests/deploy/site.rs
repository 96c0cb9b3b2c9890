//! A cluster with an API server and no kubelet, and a host that runs as a pod of it would.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The file that the binding names.
pub const POLICY: &str = "capv_machine.wasm";

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

const ANOTHER_MACHINE: &str = "
apiVersion: capv.polity.dev/v1alpha1
kind: Machine
metadata: {name: machine-02, namespace: team-a}
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
  cloud: {name: sim, configuration: {tasks: {clone: {min: 3s, max: 3s}}}}
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
        site.apply(&polity(&["crds"], &site.policy()), &[]);
        site.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]);
        site
    }

    /// The file of the policy.
    pub fn policy(&self) -> PathBuf {
        guests::folder().join(POLICY)
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

    /// A host runs as its Deployment says, and its user does what the README says: applies a machine and watches it
    /// until it runs, swaps the policy in the ConfigMap, and reads the reasons. The host holds its lease until it is ended.
    pub fn runs_machines(&self, at: Place<'_>, config_map: &str) {
        self.show(at, config_map);
        let mut host = self.host(at);
        self.apply(BINDING, &[]);
        self.apply(MACHINE, &[]);
        self.watches_until_it_runs("machine-01");

        let swapped = self.swap(at, config_map);
        let taken = format!("--for=jsonpath={{.status.policies.lifecycle.sha256}}={swapped}");
        self.kubectl(&["wait", &taken, "--timeout=300s", "policybinding/capv-machine"]);
        self.apply(ANOTHER_MACHINE, &[]);
        self.watches_until_it_runs("machine-02");

        let recordings = self.folder.path().join("data/recordings");
        for machine in ["team-a/machine-01", "team-a/machine-02"] {
            let why = polity(
                &["explain", "--ids", "Machine", machine, "--recordings"],
                &recordings,
            );
            // The clone, and the addresses.
            assert!(why.contains("CAPV-23") && why.contains("CAPV-29"), "{why}");
        }
        let holder = ["get", "lease", at.name, "-n", at.namespace, "-o"];
        let holder = [&holder[..], &["jsonpath={.spec.holderIdentity}"]].concat();
        assert!(!self.kubectl(&holder).is_empty());
        host.terminate();
        assert!(self.kubectl(&holder).is_empty(), "the lease is given up");
    }

    /// `kubectl get machines -w`, until this one runs. It shows what it was before, too.
    fn watches_until_it_runs(&self, machine: &str) {
        let mut watch = self.server.kubectl_command();
        let mut watch = watch
            .args(["get", "machines", "-n", "team-a", "-w"])
            .stdout(Stdio::piped())
            .spawn()
            .map(Ended)
            .expect("kubectl runs");
        let output: ChildStdout = watch.0.stdout.take().expect("its output");
        let mut before = 0;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                [name, "Running", ..] if *name == machine => {
                    assert!(before > 0, "{machine} ran at once");
                    return;
                }
                [name, ..] if *name == machine => before += 1,
                _ => {}
            }
        }
        panic!("the watch ended before {machine} ran");
    }

    /// The same policy built anew takes the place of the one before in the ConfigMap. Its digest.
    fn swap(&self, at: Place<'_>, config_map: &str) -> String {
        let mut component = fs::read(self.policy()).expect("read");
        // A section without meaning: its kind, its length, and its name with the length of that.
        component.extend(*b"\x00\x04\x03new");
        let folder = self.folder.path().join("new");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(POLICY), &component).expect("written");
        let from = format!("--from-file={}", folder.join(POLICY).display());
        let place = ["-n", at.namespace, "--dry-run=client", "-o", "json"];
        let made = self.kubectl(&[&["create", "configmap", config_map, &from][..], &place].concat());
        self.apply(&made, &["--server-side", "--force-conflicts"]);
        self.show(at, config_map);
        let digest = Sha256::digest(&component);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Shows the ConfigMap in the folder of the policies as a kubelet does: the files are links into a folder that one
    /// rename swaps.
    fn show(&self, at: Place<'_>, config_map: &str) {
        let template = format!("{{{{index .binaryData {POLICY:?} | base64decode}}}}");
        let get = [
            "get",
            "configmap",
            config_map,
            "-n",
            at.namespace,
            "-o",
            "go-template",
            "--template",
        ];
        let content = self.server.kubectl(&[&get[..], &[&template]].concat());
        assert!(
            content.status.success(),
            "{}",
            String::from_utf8_lossy(&content.stderr)
        );
        let folder = self.policies();
        fs::create_dir_all(&folder).expect("a folder");
        let versions = fs::read_dir(&folder).expect("a folder").count();
        let version = format!("..{versions}");
        fs::create_dir(folder.join(&version)).expect("a folder");
        fs::write(folder.join(&version).join(POLICY), content.stdout).expect("written");
        symlink(&version, folder.join("..data_tmp")).expect("a link");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("swapped");
        if !folder.join(POLICY).exists() {
            symlink(Path::new("..data").join(POLICY), folder.join(POLICY)).expect("a link");
        }
    }

    /// Where the volume of the policies is.
    fn policies(&self) -> PathBuf {
        self.folder.path().join("policies")
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
            "--policies=/policies" => format!("--policies={}", self.policies().display()),
            "--data=/data" => format!("--data={}", data.display()),
            "--metrics-listen=0.0.0.0:9090" => "--metrics-listen=127.0.0.1:0".to_owned(),
            other => other.to_owned(),
        };
        arguments.map(here).collect()
    }

    fn host(&self, at: Place<'_>) -> Ended {
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
        Ended(child)
    }
}

/// A process that is ended when dropped.
struct Ended(Child);

impl Ended {
    /// Ends as a pod does that is deleted.
    fn terminate(&mut self) {
        let kill = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Ended {
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
