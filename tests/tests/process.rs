//! A host as a process that runs a copy of an example in front of a cloud, until it is killed and begins again.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use polity::packed::unpacked;
use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ListQuery, ObjectDelete, ObjectRef, Precondition, Question};
use polity_core::object::Object;
use polity_tests::{examples, guests};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// No segment of a recording is larger.
const LARGEST: u64 = 1 << 30;
/// How often a test looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often objects are looked at before a test fails: for a quarter of an hour at least, so that one that waits for ever does not
/// hold all others up.
const LOOKS: u32 = 9_000;

/// The process, ended when dropped.
pub(crate) struct Process {
    example: tempfile::TempDir,
    data: tempfile::TempDir,
    child: Child,
    pub(crate) cluster: Cluster,
}

impl Process {
    /// Starts a host with an example, in whose manifests these texts are replaced.
    pub(crate) async fn begin(example: &str, replaced: &[(&str, &str)]) -> Self {
        let example = examples::copy_with(example, replaced);
        let data = tempfile::tempdir().expect("a folder");
        let (child, cluster) = start(example.path(), data.path()).await;
        Process {
            example,
            data,
            child,
            cluster,
        }
    }

    /// Kills the host, as a machine without power does, and starts it again.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        (self.child, self.cluster) = start(self.example.path(), self.data.path()).await;
    }

    /// Lets the host end by itself.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), Signal::TERM).expect("it is there");
        self.child.wait().expect("ended")
    }

    /// The objects of a kind.
    pub(crate) async fn objects(&mut self, kind: &Kind) -> Vec<Value> {
        self.until(kind, |_| true).await
    }

    /// Waits until the objects of a kind are as wanted.
    pub(crate) async fn until(&mut self, kind: &Kind, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until(&mut self.child, &self.cluster, kind, is_so).await
    }

    /// Changes an object as a person does.
    pub(crate) async fn patch(&self, object: &Value, patch: Value) {
        let write = Write::Patch {
            object: Object::new(object.clone()).reference(),
            subresource: None,
            precondition: None,
            patch,
        };
        self.cluster.write(&write).await.expect("it is there");
    }

    /// Deletes an object of a kind.
    pub(crate) async fn delete(&self, kind: &Kind, object: &Value) {
        let object = Object::new(object.clone());
        let delete = ObjectDelete {
            object: ObjectRef {
                kind: kind.clone(),
                ..object.reference()
            },
            precondition: Precondition {
                uid: object.uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        let delete = Write::Act(Act::Delete(delete));
        self.cluster.write(&delete).await.expect("it is there");
    }

    /// The manifests of the objects of a kind, as the example has them.
    pub(crate) fn manifests(&self, kind: &Kind) -> Vec<Value> {
        let text = std::fs::read_to_string(self.example.path().join("objects.yaml")).expect("the objects");
        let values: Vec<Value> = serde_saphyr::from_multiple(&text).expect("manifests");
        values
            .into_iter()
            .filter(|value: &Value| value["kind"] == *kind.kind)
            .collect()
    }

    /// All that was recorded.
    pub(crate) fn recorded(&self) -> String {
        recorded(&self.data.path().join("kept"))
    }

    /// What a command answers that speaks to the host's API.
    pub(crate) fn asked(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.data.path().join("kubeconfig"))
            .output()
            .expect("it runs")
    }

    /// What `polity replay` says of what was exchanged, with the compiled driver of this name.
    pub(crate) fn replayed(&self, driver: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args(["replay", "--driver"])
            .arg(guests::folder().join(driver))
            .arg("--recordings")
            .arg(self.data.path().join("kept/recordings"))
            .output()
            .expect("it runs")
    }
}

/// Nothing of this stands in what was recorded.
pub(crate) fn has_none_of(recorded: &str, secrets: &[&str]) {
    for secret in secrets {
        assert!(!recorded.contains(secret), "{secret}");
    }
}

/// All that was recorded in a data folder.
pub(crate) fn recorded(data: &Path) -> String {
    let recordings = data.join("recordings");
    let passes = std::fs::read_dir(recordings.join("passes")).expect("a recording");
    // What has no driver exchanges nothing.
    let exchanges = std::fs::read_dir(recordings.join("exchanges"))
        .into_iter()
        .flatten();
    let text = |file: std::io::Result<std::fs::DirEntry>| {
        let bytes = std::fs::read(file.expect("a file").path()).expect("it can be read");
        // What is older has been packed.
        String::from_utf8(unpacked(bytes, LARGEST).expect("it is whole")).expect("text")
    };
    passes.chain(exchanges).map(text).collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("what the host kept is in {}", self.data.path().display());
            self.data.disable_cleanup(true);
        }
    }
}

async fn start(example: &Path, data: &Path) -> (Child, Cluster) {
    let kubeconfig = data.join("kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let mut host = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
        .args(["run", "--listen", "0", "--write-kubeconfig"])
        .arg(&kubeconfig)
        .arg("--data")
        .arg(data.join("kept"))
        .arg(example)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let cluster = connected(&mut host, &kubeconfig).await;
    (host, cluster)
}

/// The API of a host that has just been started, by the kubeconfig that it writes.
pub(crate) async fn connected(host: &mut Child, kubeconfig: &Path) -> Cluster {
    while !kubeconfig.exists() {
        let ended = host.try_wait().expect("a child");
        assert!(ended.is_none(), "the host ended: {ended:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let cluster = Cluster::connect(Some(kubeconfig), None, ("kube-system", "nobody")).await;
    cluster.expect("it connects")
}

/// Waits until the objects of a kind are as wanted, as long as the host runs. Fails after [`LOOKS`].
pub(crate) async fn until(
    host: &mut Child,
    cluster: &Cluster,
    kind: &Kind,
    is_so: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let query = ListQuery {
        latest: true,
        limit: 100,
        ..ListQuery::all(kind.clone())
    };
    let question = Question::Objects(query);
    let mut seen = Ok(Value::Null);
    for _ in 0..LOOKS {
        let ended = host.try_wait().expect("a child");
        assert!(ended.is_none(), "the host ended: {ended:?}");
        seen = cluster.read(&question).await;
        // A host that has just begun may not serve them yet.
        if let Ok(Value::Array(objects)) = &seen
            && is_so(objects)
        {
            return objects.clone();
        }
        // The host and the cloud need the processor more.
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("{} is not as wanted: {seen:?}", kind.kind);
}
