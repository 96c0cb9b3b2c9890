//! A node agent that really manages Debian packages: those of a scratch root, from a repository of the test's own, with
//! apt and dpkg. Never those of the machine that runs the tests.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polity_cluster::Cluster;
use polity_core::call::Write as CoreWrite;
use polity_core::contract::{ObjectQuery, ObjectRef, Question};
use polity_tests::guests;
use polity_tests::stand::{condition_of, reference};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Nothing here takes long; this leaves room for a machine that compiles at the same time.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

const NODE: &str = "node-1";
const PACKAGE: &str = "polity-demo";

const BINDING: &str = r#"
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: node-agent}
spec:
  governs: {apiVersion: v1, kind: Node, name: "${NODE}"}
  policies:
    lifecycle:
      file: orbiter_node_agent.wasm
      configuration: {node: "${NODE}", pause: 1s}
  cloud: {name: node}
  grants: [{cloud: ["node.*"]}]
"#;

/// A scratch root, a repository, an API server and an agent.
struct Stage {
    folder: tempfile::TempDir,
    api: Child,
    agent: Option<Child>,
    cluster: Cluster,
}

impl Stage {
    async fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        for below in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/log/apt",
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "proc/sys/kernel/random",
        ] {
            fs::create_dir_all(root.join(below)).expect("a folder");
        }
        fs::write(root.join("var/lib/dpkg/status"), "").expect("written");
        fs::write(root.join("proc/sys/kernel/random/boot_id"), "boot-1\n").expect("written");
        let repository = folder.path().join("repository");
        fs::create_dir(&repository).expect("a folder");
        let source = format!("deb [trusted=yes] file:{} ./\n", repository.display());
        fs::write(root.join("etc/apt/sources.list"), source).expect("written");
        fs::write(folder.path().join("binding.yaml"), BINDING).expect("written");

        let kubeconfig = folder.path().join("polity.kubeconfig");
        let api = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(["run", "--listen", "0", "--write-kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        until("a kubeconfig", async || kubeconfig.exists().then_some(())).await;
        let cluster = Cluster::connect(Some(&kubeconfig), None, ("kube-system", "nobody"))
            .await
            .expect("it connects");
        Stage {
            folder,
            api,
            agent: None,
            cluster,
        }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Offers one more version in the repository.
    fn offer(&self, version: &str) {
        let (tree, repository) = (self.path("tree"), self.path("repository"));
        fs::create_dir_all(tree.join("DEBIAN")).expect("a folder");
        fs::create_dir_all(tree.join("usr/share").join(PACKAGE)).expect("a folder");
        fs::write(tree.join("usr/share").join(PACKAGE).join("version"), version).expect("written");
        let control = format!(
            "Package: {PACKAGE}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\n\
             Description: says its version\n"
        );
        fs::write(tree.join("DEBIAN/control"), &control).expect("written");
        let file = format!("{PACKAGE}_{version}_all.deb");
        let built = Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(&tree)
            .arg(repository.join(&file))
            .output()
            .expect("dpkg-deb runs");
        assert!(built.status.success(), "{built:?}");
        let bytes = fs::read(repository.join(&file)).expect("a package");
        let mut index = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(repository.join("Packages"))
            .expect("an index");
        let sum = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |mut sum, byte| {
                let _ = write!(sum, "{byte:02x}");
                sum
            });
        let size = bytes.len();
        writeln!(
            index,
            "{control}Filename: ./{file}\nSize: {size}\nSHA256: {sum}\n"
        )
        .expect("written");
    }

    /// Starts the agent, with a dpkg that stands still before it configures until somebody lets it go on.
    fn start_agent(&mut self, stands_still: bool) {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_polity-under-test"));
        agent
            .args(["node-agent", "--node", NODE, "--binding"])
            .arg(self.path("binding.yaml"))
            .arg("--policies")
            .arg(guests::folder())
            .arg("--data")
            .arg(self.path("data"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--kubeconfig")
            .arg(self.path("polity.kubeconfig"))
            .stdout(self.log())
            .stderr(self.log())
            // So that what it started is killed with it, as an init system does.
            .process_group(0);
        if stands_still {
            let (dpkg, config) = (self.path("dpkg"), self.path("apt.conf"));
            let reached = self.path("reached");
            let script = format!(
                "#!/bin/sh\ncase \"$*\" in *--configure*) touch {}; sleep 600;; esac\nexec /usr/bin/dpkg \"$@\"\n",
                reached.display()
            );
            fs::write(&dpkg, script).expect("written");
            fs::set_permissions(&dpkg, fs::Permissions::from_mode(0o755)).expect("executable");
            fs::write(&config, format!("Dir::Bin::dpkg \"{}\";\n", dpkg.display())).expect("written");
            agent.env("APT_CONFIG", config);
        }
        self.agent = Some(agent.spawn().expect("it runs"));
    }

    /// What the agent says; shown if the test fails.
    fn log(&self) -> fs::File {
        let mut file = fs::OpenOptions::new();
        file.append(true)
            .create(true)
            .open(self.path("agent.log"))
            .expect("a log")
    }

    /// Kills the agent and whatever it started.
    fn kill_agent(&mut self) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        let group = rustix::process::Pid::from_child(&agent);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = agent.wait();
    }

    async fn wants(&self, version: &str) {
        let annotations = json!({
            "alpha.node.caos.ch/changes-allowed": "true",
            format!("alpha.{PACKAGE}.caos.ch/desired-version"): version,
        });
        let write = CoreWrite::Patch {
            object: node(),
            subresource: None,
            patch: json!({"metadata": {"annotations": annotations}}),
        };
        self.cluster.write(&write).await.expect("it is there");
    }

    async fn node(&self) -> Value {
        let query = ObjectQuery {
            object: node(),
            projection: Vec::new(),
            latest: true,
        };
        self.cluster
            .read(&Question::Object(query))
            .await
            .unwrap_or_default()
    }

    /// Waits until the agent says that it is done and that this version is installed.
    async fn until_current(&self, version: &str) {
        let current = format!("alpha.{PACKAGE}.caos.ch/current-version");
        until(&format!("{PACKAGE} {version}"), async || {
            let annotations = self.node().await["metadata"]["annotations"].take();
            let done = annotations["alpha.node.caos.ch/ready"] == "true" && annotations[&current] == *version;
            done.then_some(())
        })
        .await;
    }

    /// What dpkg says of the package: `hold installed 1.0-1`.
    fn dpkg_says(&self) -> String {
        let output = Command::new("dpkg-query")
            .arg(format!("--admindir={}", self.path("root/var/lib/dpkg").display()))
            .args([
                "--show",
                "--showformat=${db:Status-Want} ${db:Status-Status} ${Version}",
                PACKAGE,
            ])
            .output()
            .expect("dpkg-query runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn file_says(&self) -> String {
        let file = self.path("root/usr/share").join(PACKAGE).join("version");
        fs::read_to_string(file).unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill_agent();
        if std::thread::panicking() {
            eprintln!(
                "{}",
                fs::read_to_string(self.path("agent.log")).unwrap_or_default()
            );
        }
        let _ = self.api.kill();
        let _ = self.api.wait();
    }
}

fn node() -> ObjectRef {
    reference("v1", "Node", None, NODE)
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begin.elapsed() < PATIENCE, "never seen: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Why this machine cannot have a scratch root; none if it can.
fn cannot() -> Option<&'static str> {
    let missing = |program: &str| !Path::new("/usr/bin").join(program).exists();
    if ["apt-get", "dpkg", "dpkg-deb"]
        .iter()
        .any(|program| missing(program))
    {
        return Some("this is no Debian: apt and dpkg are missing");
    }
    (!rustix::process::getuid().is_root()).then_some("dpkg needs root, also for another root")
}

#[tokio::test]
async fn packages_are_installed_upgraded_held_and_rolled_forward_after_a_kill() {
    if let Some(why) = cannot() {
        assert!(std::env::var_os("POLITY_NO_SKIP").is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    let mut stage = Stage::set().await;
    stage.offer("1.0-1");
    stage.offer("1.1-1");
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    stage.cluster.apply(&object).await.expect("a Node is created");

    // Installed, by the version without what Debian adds to it, and held.
    stage.wants("1.0").await;
    stage.start_agent(false);
    stage.until_current("1.0").await;
    assert_eq!(stage.dpkg_says(), "hold installed 1.0-1");
    assert_eq!(stage.file_says(), "1.0-1");

    // Upgraded, past the hold.
    stage.wants("1.1").await;
    stage.until_current("1.1").await;
    assert_eq!(stage.dpkg_says(), "hold installed 1.1-1");

    // A version that nobody offers changes nothing, and is said.
    stage.wants("7.0").await;
    let reason = until("a reason", async || {
        let object = stage.node().await;
        let condition = condition_of(&object, "PackagesEnsured")?;
        (condition["reason"] == "NoSuchVersion").then(|| condition["message"].to_string())
    })
    .await;
    assert!(
        reason.contains("polity-demo 7.0") && reason.contains("1.1-1"),
        "{reason}"
    );
    assert_eq!(stage.dpkg_says(), "hold installed 1.1-1");

    // Killed in the middle of an upgrade, with everything it had started: unpacked, and not configured.
    stage.kill_agent();
    stage.offer("2.0-1");
    stage.wants("2.0").await;
    stage.start_agent(true);
    let reached = stage.path("reached");
    until("dpkg in the middle", async || reached.exists().then_some(())).await;
    stage.kill_agent();
    assert_eq!(stage.dpkg_says(), "install unpacked 2.0-1");
    assert_eq!(
        stage.node().await["metadata"]["annotations"]["alpha.node.caos.ch/ready"],
        "false"
    );

    stage.start_agent(false);
    stage.until_current("2.0").await;
    assert_eq!(stage.dpkg_says(), "hold installed 2.0-1");
    assert_eq!(stage.file_says(), "2.0-1");
}
