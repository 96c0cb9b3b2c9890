//! A cluster with an API server and no kubelet, and a host that runs as a pod of it would.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity::packed::packed;
use polity_tests::empty_root::EmptyRoot;
use polity_tests::guests;
use polity_tests::kubernetes::{Assets, KubeServer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The file that the binding names.
pub const POLICY: &str = "capv-machine.wasm.gz";
/// The ConfigMap that has it.
pub const CONFIG_MAP: &str = "capv-machine";
/// Where a pod finds its service account.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// The user to whom the volumes of a pod belong, as far as the user of its containers sees.
const SOMEBODY_ELSE: u32 = 1;

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
    lifecycle: {file: capv-machine.wasm.gz, configuration: {requeuePeriod: 1s, failureBackoff: 1s}}
  cloud: {name: sim, configuration: {tasks: {clone: {min: 3s, max: 3s}}}}
  grants: [{cloud: ['vm.*', task.get]}]
";

/// A cluster, what an administrator has at hand, and the root folder of a pod.
pub struct Site {
    pub server: KubeServer,
    pub folder: tempfile::TempDir,
    pod: EmptyRoot,
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
        let site = Site::empty(assets);
        site.apply(&polity(&["crds"], &site.policy()), &[]);
        site.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]);
        site
    }

    /// A new cluster, and the file of a policy.
    pub fn empty(assets: &Assets) -> Site {
        let server = KubeServer::start(assets, tempfile::tempdir().expect("a folder"));
        let folder = tempfile::tempdir().expect("a folder");
        let pod = EmptyRoot::of(Path::new(env!("CARGO_BIN_EXE_polity-under-test")));
        let site = Site { server, folder, pod };
        let policy = packed(guests::capv_machine()).expect("packed");
        fs::write(site.policy(), policy).expect("written");
        site
    }

    /// The file of the policy.
    pub fn policy(&self) -> PathBuf {
        self.folder.path().join(POLICY)
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
        let policies = self.folder.path().display().to_string();
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
    /// until it runs, swaps the policy in its ConfigMap, and reads the reasons. The host holds its lease until it is ended.
    pub fn runs_machines(&self, at: Place<'_>) {
        let mut host = self.host(at);
        self.apply(BINDING, &[]);
        self.apply(MACHINE, &[]);
        self.watches_until_it_runs("machine-01");

        let swapped = self.swap(at);
        let taken = format!("--for=jsonpath={{.status.policies.lifecycle.sha256}}={swapped}");
        self.kubectl(&["wait", &taken, "--timeout=300s", "policybinding/capv-machine"]);
        self.apply(ANOTHER_MACHINE, &[]);
        self.watches_until_it_runs("machine-02");

        let recordings = self.pod.path("data/polity/recordings");
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

    /// The same policy built anew takes the place of the one before in its ConfigMap. Its digest.
    fn swap(&self, at: Place<'_>) -> String {
        let mut component = guests::capv_machine().to_vec();
        // A section without meaning: its kind, its length, and its name with the length of that.
        component.extend(*b"\x00\x04\x03new");
        fs::write(self.policy(), packed(&component).expect("packed")).expect("written");
        let from = format!("--from-file={}", self.policy().display());
        let place = ["-n", at.namespace, "--dry-run=client", "-o", "json"];
        let made = self.kubectl(&[&["create", "configmap", CONFIG_MAP, &from][..], &place].concat());
        self.apply(&made, &["--server-side", "--force-conflicts"]);
        self.show(at);
        let digest = Sha256::digest(&component);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Shows the ConfigMaps that the Deployment names in the folder of the policies, as a kubelet does: the files are links
    /// into a folder that one rename swaps.
    pub fn show(&self, at: Place<'_>) {
        let volumes = self.pod_spec(at)["volumes"].take();
        let mut volumes = volumes.as_array().expect("volumes").iter();
        let policies = volumes.find(|volume| volume["name"] == "policies");
        let sources = policies.expect("the policies")["projected"]["sources"].as_array();
        let folder = self.pod.path("policies");
        fs::create_dir_all(&folder).expect("a folder");
        let versions = fs::read_dir(&folder).expect("a folder").count();
        let version = format!("..{versions}");
        fs::create_dir(folder.join(&version)).expect("a folder");
        for source in sources.expect("the ConfigMaps") {
            let name = source["configMap"]["name"].as_str().expect("a name");
            let map = self.json(&["get", "configmap", name, "-n", at.namespace]);
            for (file, content) in map["binaryData"].as_object().into_iter().flatten() {
                let content = STANDARD.decode(content.as_str().expect("text")).expect("base64");
                fs::write(folder.join(&version).join(file), content).expect("written");
                let _ = symlink(Path::new("..data").join(file), folder.join(file));
            }
        }
        symlink(&version, folder.join("..data_tmp")).expect("a link");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("swapped");
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// What the Deployment that stands in the cluster says of its pods.
    fn pod_spec(&self, at: Place<'_>) -> Value {
        let mut deployment = self.json(&["get", "deployment", at.name, "-n", at.namespace]);
        deployment["spec"]["template"]["spec"].take()
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("written");
        path
    }

    /// The account's files as a pod has them.
    fn account(&self, at: Place<'_>) {
        let folder = self.pod.path(ACCOUNT);
        fs::create_dir_all(&folder).expect("a folder");
        let token = self.kubectl(&["create", "token", at.name, "-n", at.namespace]);
        fs::write(folder.join("token"), token.trim()).expect("written");
        fs::write(folder.join("namespace"), at.namespace).expect("written");
        let authority = self.server.data().join("pki/apiserver.crt");
        fs::copy(authority, folder.join("ca.crt")).expect("copied");
    }

    /// Empty volumes, at their places. As a kubelet makes them, everybody may write to them, and they belong to somebody else.
    fn volumes(&self, spec: &Value) {
        let mounts = spec["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let paths = mounts.iter().filter_map(|mount| mount["mountPath"].as_str());
        for path in paths.filter(|path| *path != "/policies") {
            let folder = self.pod.path(path);
            fs::create_dir_all(&folder).expect("a folder");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o2777)).expect("it is ours");
            // Nobody but root can give a folder away.
            let _ = chown(&folder, Some(SOMEBODY_ELSE), None);
        }
    }

    /// A command in the container of the host, as `kubectl exec` runs it.
    pub fn in_pod(&self, arguments: &[&str]) -> Command {
        let mut command = self.pod.command();
        command.args(arguments);
        command
    }

    /// Runs the first container of the Deployment: its arguments and variables, its service account, its volumes, and a root
    /// folder that holds nothing but the program. The port of its metrics is any that is free.
    pub fn host(&self, at: Place<'_>) -> Ended {
        let spec = self.pod_spec(at);
        self.show(at);
        self.account(at);
        self.volumes(&spec);
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
        let container = &spec["containers"][0];
        let mut command = self.pod.command();
        for argument in container["args"].as_array().expect("arguments") {
            command.arg(match argument.as_str().expect("text") {
                "--metrics-listen=0.0.0.0:9090" => "--metrics-listen=127.0.0.1:0",
                other => other,
            });
        }
        for variable in container["env"].as_array().into_iter().flatten() {
            let of = |field: &str| variable[field].as_str().unwrap_or_default();
            command.env(of("name"), of("value"));
        }
        command.envs([
            ("KUBERNETES_SERVICE_HOST", address),
            ("KUBERNETES_SERVICE_PORT", port),
        ]);
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
pub struct Ended(Child);

impl Ended {
    /// Ends as a pod does that is deleted.
    pub fn terminate(&mut self) {
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
