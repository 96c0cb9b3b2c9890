//! A host as a process that runs a copy of an example in front of a cloud, until it is killed and begins again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ListQuery, ObjectDelete, ObjectRef, Precondition, Question};
use polity_core::object::Object;
use polity_tests::examples;
use serde_json::Value;

/// How often a test looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The process, ended when dropped.
pub(crate) struct Process {
    example: tempfile::TempDir,
    data: tempfile::TempDir,
    child: Child,
    pub(crate) cluster: Cluster,
}

impl Process {
    /// Starts a host with an example, in whose connection these texts are replaced.
    pub(crate) async fn begin(example: &str, replaced: &[(&str, &str)]) -> Self {
        let example = examples::copy(example);
        let file = example.path().join("connection.yaml");
        let mut text = std::fs::read_to_string(&file).expect("the connection");
        for (from, to) in replaced {
            assert!(text.contains(from), "the connection has no {from}");
            text = text.replace(from, to);
        }
        std::fs::write(&file, text).expect("written");
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

    /// The objects of a kind.
    pub(crate) async fn objects(&self, kind: &Kind) -> Vec<Value> {
        let query = ListQuery {
            latest: true,
            limit: 100,
            ..ListQuery::all(kind.clone())
        };
        match self.cluster.read(&Question::Objects(query)).await {
            Ok(Value::Array(objects)) => objects,
            _ => Vec::new(),
        }
    }

    /// Waits until the objects of a kind are as wanted. Who waits is ended from outside where that never comes.
    pub(crate) async fn until(&mut self, kind: &Kind, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the host ended: {ended:?}");
            let objects = self.objects(kind).await;
            if is_so(&objects) {
                return objects;
            }
            // The host and the cloud need the processor more.
            tokio::time::sleep(LOOK_EVERY).await;
        }
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
    while !kubeconfig.exists() {
        let ended = host.try_wait().expect("a child");
        assert!(ended.is_none(), "the host ended: {ended:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let cluster = Cluster::connect(Some(&kubeconfig), None, ("kube-system", "nobody")).await;
    (host, cluster.expect("it connects"))
}
