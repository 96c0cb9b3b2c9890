//! A host of an example as a process in front of the server of a cloud, killed and started again. No test: others use it.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ListQuery, ObjectDelete, ObjectRef, Precondition, Question};
use polity_core::object::Object;
use polity_tests::examples;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How often a test looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A host, ended when dropped.
pub(crate) struct Staged {
    /// The manifests.
    example: tempfile::TempDir,
    data: tempfile::TempDir,
    host: Child,
    pub(crate) cluster: Cluster,
    /// The objects that the test is about.
    kind: Kind,
}

impl Staged {
    /// Starts a host of an example, in whose manifests these texts are replaced.
    pub(crate) async fn begin(example: &str, replaced: &[(&str, &str)], kind: Kind) -> Self {
        let example = examples::copy(example);
        for entry in std::fs::read_dir(example.path()).expect("the example") {
            let path = entry.expect("an entry").path();
            // Components are no text.
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).expect("a manifest");
                let text = replaced
                    .iter()
                    .fold(text, |text, (before, after)| text.replace(before, after));
                std::fs::write(&path, text).expect("written");
            }
        }
        let data = tempfile::tempdir().expect("a folder");
        let (host, cluster) = start(example.path(), data.path()).await;
        Staged {
            example,
            data,
            host,
            cluster,
            kind,
        }
    }

    /// Kills the host, as a machine without power does, and starts it again.
    pub(crate) async fn kill(&mut self) {
        self.host.kill().expect("killed");
        self.host.wait().expect("ended");
        (self.host, self.cluster) = start(self.example.path(), self.data.path()).await;
    }

    /// Lets the host end by itself.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let pid = i32::try_from(self.host.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), Signal::TERM).expect("it is there");
        self.host.wait().expect("ended")
    }

    /// The objects that the test is about.
    pub(crate) async fn objects(&mut self) -> Vec<Value> {
        self.until(|_| true).await
    }

    /// Waits until all objects are as wanted. Who waits is ended from outside where that never comes.
    pub(crate) async fn until(&mut self, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let query = ListQuery {
            latest: true,
            limit: 100,
            ..ListQuery::all(self.kind.clone())
        };
        let question = Question::Objects(query);
        loop {
            let ended = self.host.try_wait().expect("a child");
            assert!(ended.is_none(), "the host ended: {ended:?}");
            // A host that has just begun may not serve them yet.
            if let Ok(Value::Array(objects)) = self.cluster.read(&question).await
                && is_so(&objects)
            {
                return objects;
            }
            // The host and the cloud need the processor more.
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let object = Object::new(object.clone());
        let delete = ObjectDelete {
            object: ObjectRef {
                kind: self.kind.clone(),
                ..object.reference()
            },
            precondition: Precondition {
                uid: object.uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        self.cluster
            .write(&Write::Act(Act::Delete(delete)))
            .await
            .expect("it is there");
    }

    /// The manifests of the objects that the test is about, as the example has them.
    pub(crate) fn manifests(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.example.path().join("objects.yaml")).expect("the objects");
        let documents = serde_yaml_ng::Deserializer::from_str(&text);
        let values = documents.map(|document| serde::Deserialize::deserialize(document).expect("a manifest"));
        values
            .filter(|value: &Value| value["kind"] == *self.kind.kind)
            .collect()
    }

    /// All that was recorded.
    pub(crate) fn recorded(&self) -> String {
        let folder = self.data.path().join("kept/recordings/passes");
        let files = std::fs::read_dir(folder).expect("a recording");
        let text = |file: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(file.expect("a file").path()).expect("text")
        };
        files.map(text).collect()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.host.kill();
        let _ = self.host.wait();
    }
}

pub(crate) fn kind(api_version: &str, kind: &str) -> Kind {
    Kind {
        api_version: api_version.into(),
        kind: kind.into(),
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
    while !kubeconfig.exists() {
        let ended = host.try_wait().expect("a child");
        assert!(ended.is_none(), "the host ended: {ended:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let cluster = Cluster::connect(Some(&kubeconfig), None, ("kube-system", "nobody")).await;
    (host, cluster.expect("it connects"))
}

/// Whether there are so many objects, and each is so.
pub(crate) fn all_have(machines: &[Value], count: usize, is_so: impl Fn(&Value) -> bool) -> bool {
    machines.len() == count && machines.iter().all(is_so)
}
