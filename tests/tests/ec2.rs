//! The policies of machines on EC2: the driver as a component, the host as a process, the cloud by moto.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ListQuery, ObjectDelete, ObjectRef, Precondition, Question};
use polity_core::object::Object;
use polity_tests::examples;
use polity_tests::moto::{ACCOUNT, Moto};
use serde_json::{Value, json};

const MCM: &str = "mcm.polity.dev/v1alpha1";
/// How often a test looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The values that stand in Secrets of the example.
const SECRETS: [&str; 2] = ["wJalrXUtnFEMI", "#cloud-config"];

/// A host of the example in front of a cloud.
struct Stage {
    example: tempfile::TempDir,
    data: tempfile::TempDir,
    host: Child,
    cluster: Cluster,
}

impl Stage {
    async fn begin(moto: &Moto, example: &str) -> Self {
        let example = examples::copy(example);
        let file = example.path().join("connection.yaml");
        let text = std::fs::read_to_string(&file).expect("the connection");
        std::fs::write(&file, text.replace("127.0.0.1:5555", moto.address())).expect("written");
        let data = tempfile::tempdir().expect("a folder");
        let (host, cluster) = start(example.path(), data.path()).await;
        Stage {
            example,
            data,
            host,
            cluster,
        }
    }

    /// Kills the host, as a machine without power does, and starts it again.
    async fn kill(&mut self) {
        self.host.kill().expect("killed");
        self.host.wait().expect("ended");
        (self.host, self.cluster) = start(self.example.path(), self.data.path()).await;
    }

    async fn machines(&self) -> Vec<Value> {
        self.list(kind(MCM, "Machine")).await
    }

    async fn list(&self, kind: Kind) -> Vec<Value> {
        let query = ListQuery {
            latest: true,
            limit: 100,
            ..ListQuery::all(kind)
        };
        match self.cluster.read(&Question::Objects(query)).await {
            Ok(Value::Array(objects)) => objects,
            _ => Vec::new(),
        }
    }

    /// Waits until all machines are as wanted. Who waits is ended from outside where that never comes.
    async fn until(&mut self, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        loop {
            let ended = self.host.try_wait().expect("a child");
            assert!(ended.is_none(), "the host ended: {ended:?}");
            let machines = self.machines().await;
            if is_so(&machines) {
                return machines;
            }
            // The host and the cloud need the processor more.
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The node that a machine's kubelet would register.
    async fn register(&self, machine: &Value) {
        let id = machine["status"]["providerID"].as_str().expect("an id");
        let name = machine["metadata"]["labels"]["node"]
            .as_str()
            .expect("the name of its node");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id}});
        self.cluster.apply(&node).await.expect("a node");
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let write = Write::Patch {
            object: Object::new(node).reference(),
            subresource: Some("status".into()),
            precondition: None,
            patch: ready,
        };
        self.cluster.write(&write).await.expect("it is ready");
    }

    async fn delete(&self, machine: &Value) {
        let machine = Object::new(machine.clone());
        let delete = ObjectDelete {
            object: ObjectRef {
                kind: kind(MCM, "Machine"),
                ..machine.reference()
            },
            precondition: Precondition {
                uid: machine.uid().to_owned(),
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

    /// All that was recorded.
    fn recorded(&self) -> String {
        let folder = self.data.path().join("kept/recordings/passes");
        let files = std::fs::read_dir(folder).expect("a recording");
        let text = |file: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(file.expect("a file").path()).expect("text")
        };
        files.map(text).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.host.kill();
        let _ = self.host.wait();
    }
}

fn kind(api_version: &str, kind: &str) -> Kind {
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

fn all_have(machines: &[Value], count: usize, is_so: impl Fn(&Value) -> bool) -> bool {
    machines.len() == count && machines.iter().all(is_so)
}

#[tokio::test]
async fn machines_come_and_go_on_ec2_however_often_the_host_is_killed() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let mut stage = Stage::begin(&moto, "aws-machines").await;
    // Both were launched, and the host was hardly told. Of one that was not launched the next host is sure in five minutes only.
    let launched = |_: &[Value]| {
        moto.instances(ACCOUNT, "running").len() + moto.instances(ACCOUNT, "pending").len() == 2
    };
    stage.until(launched).await;
    stage.kill().await;
    let machines = stage
        .until(|all| all_have(all, 2, |machine| machine["status"]["providerID"].is_string()))
        .await;
    assert_eq!(
        moto.instances(ACCOUNT, "running").len(),
        2,
        "one for each machine"
    );
    for machine in &machines {
        stage.register(machine).await;
    }
    let running = |all: &[Value]| {
        all_have(all, 2, |machine| {
            machine["status"]["currentStatus"]["phase"] == "Running"
        })
    };
    stage.until(running).await;
    for machine in &machines {
        stage.delete(machine).await;
    }
    stage.kill().await;
    stage.until(<[Value]>::is_empty).await;
    assert_eq!(moto.instances(ACCOUNT, "running"), Vec::<String>::new());
    assert_eq!(moto.instances(ACCOUNT, "terminated").len(), 2);
    let recorded = stage.recorded();
    assert!(recorded.contains("machine.create"));
    for secret in SECRETS {
        assert!(!recorded.contains(secret), "{secret}");
    }
}

/// The accounts of the teams of the example.
const TEAMS: [(&str, &str); 2] = [("team-blue", "222222222222"), ("team-green", "333333333333")];

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut found = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == kind);
    found.next().unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_machine_is_in_the_account_of_its_team_and_nobody_helps_himself_to_another_ones() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let mut stage = Stage::begin(&moto, "aws-tenants").await;
    let named = |name: &'static str| move |machine: &&Value| machine["metadata"]["name"] == name;
    let own = |machines: &[Value]| {
        machines
            .iter()
            .filter(named("web-1"))
            .cloned()
            .collect::<Vec<_>>()
    };
    let denied = |machines: &[Value]| {
        let mut borrowed = machines.iter().filter(named("web-2"));
        borrowed.any(|machine| condition(machine, "PrincipalUsageAllowed")["status"] == "False")
    };
    let made = |machine: &Value| machine["status"]["providerID"].is_string();
    stage
        .until(|all| all_have(&own(all), 2, made) && denied(all))
        .await;
    let in_each = |state: &str| TEAMS.map(|(_, account)| moto.instances(account, state).len());
    assert_eq!(in_each("running"), [1, 1]);
    for account in [ACCOUNT, "111111111111"] {
        assert_eq!(
            moto.instances(account, "running"),
            [""; 0],
            "nothing is made in passing"
        );
    }
    let reached = |connections: &[Value]| {
        let reached = connections
            .iter()
            .map(|connection| condition(connection, "Reachable")["status"] == "True");
        reached.eq([true])
    };
    while !reached(&stage.list(kind("polity.dev/v1alpha1", "CloudConnection")).await) {
        tokio::time::sleep(LOOK_EVERY).await;
    }

    stage.kill().await;
    for machine in stage.machines().await {
        stage.delete(&machine).await;
    }
    stage.until(<[Value]>::is_empty).await;
    assert_eq!((in_each("running"), in_each("terminated")), ([0, 0], [1, 1]));
    let recorded = stage.recorded();
    assert!(
        recorded.contains("assumed-role/machines/polity-"),
        "who acts is recorded"
    );
    for secret in SECRETS {
        assert!(!recorded.contains(secret), "{secret}");
    }
}
