//! A node agent that really manages Debian packages, with apt and dpkg: in a temporary root, from a
//! repository of the test. It never touches the machine that runs the tests, and a script stands in for a
//! reboot.

mod upgrade;

use std::collections::BTreeMap;
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
use polity_tests::host_fixture::{HostFixture, condition_of, reference};
use polity_tests::passes::{self, edges_of};
use polity_tests::skip::Skip;
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
  cloud: {name: node, configuration: {rebootCommand: ["${REBOOT}"]}}
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
        let reboot = folder.path().join("reboot");
        script(
            &reboot,
            &format!("echo rebooted >> {}", folder.path().join("reboots").display()),
        );
        let binding = BINDING.replace("${REBOOT}", &reboot.display().to_string());
        fs::write(folder.path().join("binding.yaml"), binding).expect("written");

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
        let file = format!("usr/share/{PACKAGE}/version");
        self.offer_package(PACKAGE, version, "", &[(&file, version)]);
    }

    /// Offers a package with more fields and these files, all of them executable.
    fn offer_package(&self, package: &str, version: &str, fields: &str, files: &[(&str, &str)]) {
        let (tree, repository) = (self.path("tree"), self.path("repository"));
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(tree.join("DEBIAN")).expect("a folder");
        for (file, text) in files {
            let file = tree.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(&file, text).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
        }
        let control = format!(
            "Package: {package}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\n\
             {fields}Description: says its version\n"
        );
        fs::write(tree.join("DEBIAN/control"), &control).expect("written");
        let file = format!("{package}_{version}_all.deb");
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

    /// The agent, which does not run yet.
    fn agent(&self) -> Command {
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
        agent
    }

    /// Starts the agent.
    fn start_agent(&mut self) {
        self.start(self.agent());
    }

    fn start(&mut self, mut agent: Command) {
        self.agent = Some(agent.spawn().expect("it runs"));
    }

    /// Starts the agent, with a dpkg that stands still before it configures until somebody lets it go on.
    fn start_agent_that_stands_still(&mut self) {
        let (dpkg, config) = (self.path("dpkg"), self.path("apt.conf"));
        let stands_still = format!(
            "case \"$*\" in *--configure*) touch {}; sleep 600;; esac\nexec /usr/bin/dpkg \"$@\"",
            self.path("reached").display()
        );
        script(&dpkg, &stands_still);
        fs::write(&config, format!("Dir::Bin::dpkg \"{}\";\n", dpkg.display())).expect("written");
        let mut agent = self.agent();
        agent.env("APT_CONFIG", config);
        self.start(agent);
    }

    /// The machine goes down, and comes up in another boot with its agent.
    fn reboots_into(&mut self, boot: &str, agent: Command) {
        self.kill_agent();
        let file = self.path("root/proc/sys/kernel/random/boot_id");
        fs::write(file, format!("{boot}\n")).expect("written");
        self.start(agent);
    }

    /// How often the machine was told to reboot.
    fn reboots(&self) -> usize {
        let text = fs::read_to_string(self.path("reboots")).unwrap_or_default();
        text.lines().count()
    }

    async fn until_reboots(&self, count: usize) {
        let what = format!("reboot {count}");
        until(&what, async || (self.reboots() == count).then_some(())).await;
    }

    /// Everything below a folder: files with their content.
    fn everything_below(&self, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut all, mut folders) = (BTreeMap::new(), vec![self.path(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    all.insert(path.clone(), Vec::new());
                    folders.push(path);
                } else {
                    all.insert(path.clone(), fs::read(path).expect("a file"));
                }
            }
        }
        all
    }

    /// What the agents have said so far.
    fn said(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    /// The edges that agents took, in order; of one that came again at once the first alone.
    fn took(&self) -> String {
        let explained = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(["explain", "Node", NODE, "--all", "-o", "json", "--recordings"])
            .arg(self.path("data/recordings"))
            .output()
            .expect("it runs");
        assert!(explained.status.success(), "{explained:?}");
        let passes = passes::explained(&String::from_utf8_lossy(&explained.stdout));
        let edges: Vec<String> = passes.iter().map(|pass| edges_of(pass, "ORB-")).collect();
        let mut all: Vec<&str> = edges.iter().flat_map(|edges| edges.split_whitespace()).collect();
        all.dedup();
        all.join(" ")
    }

    /// Waits until these edges stand in the recording. A pass is written down after its acts, and not by an agent that is killed.
    async fn until_took(&self, edges: &str) {
        until(edges, async || self.took().contains(edges).then_some(())).await;
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

    /// The node joins.
    async fn registers(&self) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        self.cluster.apply(&object).await.expect("a Node is created");
    }

    async fn wants(&self, version: &str) {
        self.annotates(json!({
            "alpha.node.caos.ch/changes-allowed": "true",
            format!("alpha.{PACKAGE}.caos.ch/desired-version"): version,
        }))
        .await;
    }

    async fn annotates(&self, annotations: Value) {
        let write = CoreWrite::Patch {
            object: node(),
            subresource: None,
            precondition: None,
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
            eprintln!("{}", self.said());
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

/// An executable file.
fn script(file: &Path, text: &str) {
    fs::write(file, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("executable");
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
        return Skip::because(why).print();
    }
    let mut stage = Stage::set().await;
    stage.offer("1.0-1");
    stage.offer("1.1-1");
    stage.registers().await;

    // Installed, by the version without what Debian adds to it, and held.
    stage.wants("1.0").await;
    stage.start_agent();
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
    stage.start_agent_that_stands_still();
    let reached = stage.path("reached");
    until("dpkg in the middle", async || reached.exists().then_some(())).await;
    stage.kill_agent();
    assert_eq!(stage.dpkg_says(), "install unpacked 2.0-1");
    assert_eq!(
        stage.node().await["metadata"]["annotations"]["alpha.node.caos.ch/ready"],
        "false"
    );

    stage.start_agent();
    stage.until_current("2.0").await;
    assert_eq!(stage.dpkg_says(), "hold installed 2.0-1");
    assert_eq!(stage.file_says(), "2.0-1");
}

#[tokio::test]
async fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let mut stage = Stage::set().await;
    stage.offer("1.0-1");
    stage.offer("1.1-1");
    stage.registers().await;
    stage.wants("1.0").await;
    stage.start_agent();
    stage.until_current("1.0").await;
    stage.kill_agent();
    let (before, remembered) = (
        stage.everything_below("root"),
        fs::read(stage.path("data/cloud-node.json")).expect("it remembers"),
    );

    stage.wants("1.1").await;
    let mut dry = stage.agent();
    dry.arg("--dry-run");
    stage.start(dry);
    let root = stage.path("root").display().to_string();
    // More than once: nothing of it was done.
    let said = until("the last command, twice", async || {
        let said = stage.said();
        (said.matches("--set-selections").count() >= 2).then_some(said)
    })
    .await;
    for command in [
        format!("dry run: dpkg --root={root} --configure -a"),
        "-q update".to_owned(),
        format!("install -- {PACKAGE}=1.1-1"),
        format!("dry run: dpkg --root={root} --set-selections"),
    ] {
        assert!(said.contains(&command), "{command}: {said}");
    }
    stage.kill_agent();
    let after = stage.everything_below("root");
    let differ = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let differing: Vec<&PathBuf> = before.keys().chain(after.keys()).filter(differ).collect();
    assert_eq!(differing, Vec::<&PathBuf>::new());
    assert_eq!(stage.dpkg_says(), "hold installed 1.0-1");
    assert_eq!(
        fs::read(stage.path("data/cloud-node.json")).expect("it remembers"),
        remembered
    );
    let annotations = stage.node().await["metadata"]["annotations"].take();
    assert_eq!(
        annotations[format!("alpha.{PACKAGE}.caos.ch/current-version")],
        "1.0"
    );

    // What was only said is done by the next one that is meant.
    stage.start_agent();
    stage.until_current("1.1").await;
    assert_eq!(stage.dpkg_says(), "hold installed 1.1-1");
}

#[tokio::test]
async fn a_machine_reboots_once_to_be_prepared_and_once_for_a_change_that_needs_it() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let mut stage = Stage::set().await;
    stage.offer("1.0-1");
    stage.offer("1.1-1");
    fs::write(stage.path("seed.yaml"), format!("{PACKAGE}: \"1.0\"\n")).expect("written");
    let installed = |stage: &Stage| {
        let mut agent = stage.agent();
        agent.arg("--seed").arg(stage.path("seed.yaml"));
        agent
    };

    // There is no Node yet.
    stage.start(installed(&stage));
    stage.until_reboots(1).await;
    stage.until_took("06").await;
    assert_eq!(stage.dpkg_says(), "hold installed 1.0-1");
    stage.reboots_into("boot-2", installed(&stage));
    until("the machine is prepared", async || {
        let memory = fs::read_to_string(stage.path("data/cloud-node.json")).ok()?;
        let memory: Value = serde_json::from_str(&memory).expect("JSON");
        (memory["initialized"] == true).then_some(())
    })
    .await;
    assert!(stage.node().await.is_null());
    stage.registers().await;
    stage.until_current("1.0").await;

    // A package says that it needs another boot, as Debian's do.
    fs::create_dir_all(stage.path("root/run")).expect("a folder");
    fs::write(stage.path("root/run/reboot-required"), "").expect("written");
    stage.wants("1.1").await;
    stage.until_reboots(2).await;
    let annotations = stage.node().await["metadata"]["annotations"].take();
    assert_eq!(annotations["alpha.node.caos.ch/ready"], "false");
    assert_eq!(
        annotations[format!("alpha.{PACKAGE}.caos.ch/current-version")],
        "1.1"
    );
    stage.until_took("25").await;
    stage.reboots_into("boot-3", installed(&stage));
    stage.until_current("1.1").await;
    assert_eq!(stage.dpkg_says(), "hold installed 1.1-1");
    assert_eq!(stage.reboots(), 2);

    stage.until_took("20 21a 21b 25 32 26").await;
    let took = stage.took();
    assert!(took.starts_with("06 32 07 10"), "{took}");
}

#[tokio::test]
async fn there_is_one_agent_on_a_machine() {
    let mut stage = Stage::set().await;
    stage.start_agent();
    let recordings = stage.path("data/recordings");
    until("the first one", async || recordings.exists().then_some(())).await;
    let second = stage
        .agent()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output();
    let second = second.expect("it runs");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("is in use by another process"),
        "{said}"
    );

    // Its place is free once it is gone, however it went.
    stage.kill_agent();
    stage.registers().await;
    stage.start_agent();
    until("the next one", async || {
        let annotations = stage.node().await["metadata"]["annotations"].take();
        (annotations["alpha.node.caos.ch/ready"] == "true").then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_of_a_cluster_does_not_govern_the_machine_that_it_runs_on() {
    let fixture = HostFixture::with(Vec::new()).await;
    let policy = fs::read(guests::folder().join("orbiter_node_agent.wasm")).expect("it is built");
    fixture.put("orbiter_node_agent.wasm", &policy);
    let binding = BINDING.replace("${NODE}", NODE).replace("${REBOOT}", "true");
    let binding: Value = serde_saphyr::from_str(&binding).expect("YAML");
    fixture.apply(&binding).await;
    let words = "the machine on which the process runs: use it with `polity node-agent`";
    fixture.until_said("node-agent", "Loaded", "False", words).await;
}

#[test]
fn an_agent_needs_its_own_node_and_events_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let binding = folder.path().join("binding.yaml");
    fs::write(&binding, BINDING.replace("${REBOOT}", "true")).expect("written");
    let rbac = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["rbac", "--node", NODE, "-o", "json", "--policies"])
        .arg(guests::folder())
        .arg(&binding)
        .output()
        .expect("it runs");
    assert!(rbac.status.success(), "{rbac:?}");
    let objects = String::from_utf8_lossy(&rbac.stdout).into_owned();
    let objects: Vec<Value> = objects
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let name = "polity-node-node-1";
    let seen: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!([
                object["kind"],
                object["metadata"]["name"],
                object["metadata"]["namespace"]
            ])
        })
        .collect();
    let expected = [
        json!(["ClusterRole", name, null]),
        json!(["ClusterRoleBinding", name, null]),
        json!(["Role", name, "default"]),
        json!(["RoleBinding", name, "default"]),
    ];
    assert_eq!(seen, expected);
    let own = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "resourceNames": [NODE], "verbs": verbs});
    assert_eq!(
        objects[0]["rules"],
        json!([
            own("nodes", &["get", "list", "patch", "watch"]),
            own("nodes/status", &["patch"]),
        ])
    );
    let events =
        json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "get", "patch"]});
    assert_eq!(objects[2]["rules"], json!([events]));
    let subject = json!({"kind": "ServiceAccount", "namespace": "polity-system", "name": name});
    assert_eq!(objects[1]["subjects"], json!([subject]));
}
