//! The policies of machines on EC2: the driver is a component, the host a process, and moto the cloud.

use polity_core::call::Write;
use polity_core::contract::Kind;
use polity_core::object::Object;
use polity_tests::moto::{ACCOUNT, Moto};
use serde_json::{Value, json};

use crate::process::{LOOK_EVERY, Process, has_none_of};

pub(crate) const MCM: &str = "mcm.polity.dev/v1alpha1";
/// The values that stand in Secrets of the example.
pub(crate) const SECRETS: [&str; 3] = ["wJalrXUtnFEMI", "je7MtGbClwBF", "#cloud-config"];

/// In the binding of the machines, the cloud; and in its place the simulated one, which knows the key of the team.
pub(crate) const ON_SIM: (&str, &str) = (
    "cloud:\n    name: aws\n",
    r#"cloud:
    name: sim
    configuration:
      identity:
        host: {account: "111111111111", arn: "arn:aws:iam::111111111111:role/host"}
        accessKeys:
          - id: AKIAI44QH8DHBEXAMPLE
            # Of the example's key, as sha256sum prints it.
            secretSha256: e21b597ba6b9cafa59d9ebc4d65c0385f5eb3fa56abab2607fa76589ad849a33
            account: "222222222222"
            arn: arn:aws:iam::222222222222:user/team-a
"#,
);

async fn begin(moto: &Moto, example: &str) -> Process {
    Process::begin(example, &[("127.0.0.1:5555", moto.address())]).await
}

/// The node that a machine's kubelet would register.
pub(crate) async fn register(host: &Process, machine: &Value) {
    let id = machine["status"]["providerID"].as_str().expect("an id");
    let name = machine["metadata"]["labels"]["node"]
        .as_str()
        .expect("the name of its node");
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id}});
    host.cluster.apply(&node).await.expect("a node");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let write = Write::Patch {
        object: Object::new(node).reference(),
        subresource: Some("status".into()),
        precondition: None,
        patch: ready,
    };
    host.cluster.write(&write).await.expect("it is ready");
}

pub(crate) fn kind(api_version: &str, kind: &str) -> Kind {
    Kind {
        api_version: api_version.into(),
        kind: kind.into(),
    }
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
    let mut host = begin(&moto, "aws-machines").await;
    // Both were launched, and the host was hardly told. Of one that was not launched the next host is sure in five minutes only.
    let launched = |_: &[Value]| {
        moto.instances(ACCOUNT, "running").len() + moto.instances(ACCOUNT, "pending").len() == 2
    };
    host.until(&kind(MCM, "Machine"), launched).await;
    host.kill().await;
    let machines = host
        .until(&kind(MCM, "Machine"), |all| {
            all_have(all, 2, |machine| machine["status"]["providerID"].is_string())
        })
        .await;
    assert_eq!(
        moto.instances(ACCOUNT, "running").len(),
        2,
        "one for each machine"
    );
    for machine in &machines {
        register(&host, machine).await;
    }
    let running = |all: &[Value]| {
        all_have(all, 2, |machine| {
            machine["status"]["currentStatus"]["phase"] == "Running"
        })
    };
    host.until(&kind(MCM, "Machine"), running).await;
    for machine in &machines {
        host.delete(&kind(MCM, "Machine"), machine).await;
    }
    host.kill().await;
    host.until(&kind(MCM, "Machine"), <[Value]>::is_empty).await;
    assert_eq!(moto.instances(ACCOUNT, "running"), Vec::<String>::new());
    assert_eq!(moto.instances(ACCOUNT, "terminated").len(), 2);
    let recorded = host.recorded();
    assert!(recorded.contains("machine.create"));
    assert!(
        recorded.contains("machine.initialize"),
        "the check of sources and destinations is off"
    );
    assert!(recorded.contains("machine.list"), "nothing is left behind");
    has_none_of(&recorded, &SECRETS);

    let same = host.replayed("polity_driver_aws.wasm");
    let said = String::from_utf8_lossy(&same.stdout);
    assert!(
        same.status.success() && said.contains(" as recorded, 0 otherwise"),
        "{said}"
    );
    assert!(!said.starts_with("0 operations"), "{said}");
    let other = host.replayed("hostile_driver.wasm");
    let said = String::from_utf8_lossy(&other.stdout);
    assert_eq!(other.status.code(), Some(1), "{said}");
    assert!(said.contains(": 0 as recorded, "), "{said}");
}

#[tokio::test]
async fn the_sweep_reads_all_pages_of_a_tenants_instances_beside_which_machines_are_made() {
    // An answer has at most 200 reservations.
    const OTHERS: usize = 205;
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let tags = [
        ("Name", "other"),
        ("polity.dev/owner", "somebody"),
        ("polity.dev/tenant", "team-a"),
    ];
    let tags = (1..).zip(tags).map(|(nth, (key, value))| {
        let at = format!("TagSpecification.1.Tag.{nth}");
        format!("&{at}.Key={key}&{at}.Value={value}")
    });
    let form = format!(
        "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&TagSpecification.1.ResourceType=instance{}",
        tags.collect::<String>()
    );
    // Moto divides the list between launches only.
    for _ in 0..OTHERS {
        moto.ec2(ACCOUNT, &form);
    }
    let changes = [
        ("127.0.0.1:5555", moto.address()),
        ("replicas: 10", "replicas: 2"),
    ];
    let mut host = Process::begin("aws-machineset", &changes).await;
    // The sweep lists them all.
    let found = |safety: &Value| {
        let orphans = safety["status"]["orphans"].as_array();
        orphans.is_some_and(|orphans| orphans.len() == OTHERS)
    };
    host.until(&kind(MCM, "MachineSafety"), |all| all_have(all, 1, found))
        .await;
    let made = |machine: &Value| machine["status"]["providerID"].is_string();
    host.until(&kind(MCM, "Machine"), |all| all_have(all, 2, made))
        .await;
}

/// User data with a word of EC2's answers: before, it was hidden in later answers about machines of its namespace, also in names of
/// fields, so that deleted objects went and their instances stayed.
#[tokio::test]
async fn user_data_with_a_word_of_the_clouds_answers_loses_no_machine() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&moto, "aws-machines").await;
    let machines = kind(MCM, "Machine");
    let made = |machine: &Value| machine["status"]["providerID"].is_string();
    host.until(&machines, |all| all_have(all, 2, made)).await;

    let words = [
        ("instance", "shorter than 16 bytes"),
        ("availabilityZone", "name of a field"),
    ];
    let class = host.manifests(&kind(MCM, "MachineClass")).remove(0);
    for (nth, (word, _)) in words.iter().enumerate() {
        let name = format!("word-{nth}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "team-a", "name": name},
            "stringData": {"userData": word},
        });
        let mut class = class.clone();
        class["metadata"]["name"] = json!(name);
        class["spec"]["secretRef"]["name"] = json!(name);
        let machine = json!({
            "apiVersion": MCM, "kind": "Machine", "metadata": {"namespace": "team-a", "name": name},
            "spec": {"class": {"kind": "MachineClass", "name": name}},
        });
        for object in [secret, class, machine] {
            host.cluster.apply(&object).await.expect("it is applied");
        }
    }
    let says_why = |all: &[Value]| {
        words.iter().enumerate().all(|(nth, (_, why))| {
            let mut all = all.iter();
            let named = all.find(|machine| machine["metadata"]["name"] == format!("word-{nth}"));
            named.is_some_and(|machine| machine["status"].to_string().contains(why))
        })
    };
    let all = host.until(&machines, says_why).await;
    assert_eq!(all.len(), 4);
    assert_eq!(
        moto.instances(ACCOUNT, "running").len(),
        2,
        "of the healthy machines"
    );
    for machine in &all {
        host.delete(&machines, machine).await;
    }
    host.until(&machines, <[Value]>::is_empty).await;
    assert_eq!(moto.instances(ACCOUNT, "running"), Vec::<String>::new());
    assert_eq!(moto.instances(ACCOUNT, "terminated").len(), 2);
}

#[tokio::test]
async fn a_machine_is_never_made_with_other_credentials_than_those_of_its_class() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let changes = [
        ("127.0.0.1:5555", moto.address()),
        (
            "credentialsSecretRef:\n    name: cloud-credentials",
            "credentialsSecretRef:\n    name: later",
        ),
    ];
    let mut host = Process::begin("aws-machines", &changes).await;
    let denied = |machine: &Value| condition(machine, "CredentialsFound")["status"] == "False";
    let machines = host
        .until(&kind(MCM, "Machine"), |all| all_have(all, 2, denied))
        .await;
    let message = &condition(&machines[0], "CredentialsFound")["message"];
    assert_eq!(message, "Secret later does not exist");
    // The lifecycle takes its own edge for it, and so shows it.
    assert_eq!(
        condition(&machines[0], "ClassValid")["reason"],
        "SecretInvalid",
        "{}",
        machines[0]
    );
    for state in ["pending", "running"] {
        assert_eq!(moto.instances(ACCOUNT, state), Vec::<String>::new());
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "team-a", "name": "later"},
        "stringData": {"accessKeyID": "AKIAI44QH8DHBEXAMPLE", "secretAccessKey": "later-and-secret"},
    });
    host.cluster.apply(&secret).await.expect("a Secret");
    let made = |machine: &Value| {
        machine["status"]["providerID"].is_string()
            && condition(machine, "CredentialsFound")["status"] == "True"
    };
    host.until(&kind(MCM, "Machine"), |all| all_have(all, 2, made))
        .await;
    let recorded = host.recorded();
    assert!(
        recorded.contains(r#""kind":"MachineClass""#) || recorded.contains(r#"\"kind\":\"MachineClass\""#)
    );
    has_none_of(&recorded, &["later-and-secret"]);
}

#[tokio::test]
async fn a_machine_whose_class_is_gone_is_deleted_with_the_credentials_that_the_class_had() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let without = "file: mcm_machine.wasm\n      configuration: {deleteWithoutClass: true}";
    let changes = [
        ("127.0.0.1:5555", moto.address()),
        ("file: mcm_machine.wasm", without),
    ];
    let mut host = Process::begin("aws-machines", &changes).await;
    let made = |machine: &Value| machine["status"]["providerID"].is_string();
    let machines = host
        .until(&kind(MCM, "Machine"), |all| all_have(all, 2, made))
        .await;
    assert_eq!(
        machines[0]["status"]["credentials"]["secretName"],
        "cloud-credentials"
    );
    // Somebody does not wait for its machines.
    let of_classes = kind(MCM, "MachineClass");
    let is_held = |classes: &[Value]| classes[0]["metadata"]["finalizers"].is_array();
    let classes = host.until(&of_classes, is_held).await;
    host.delete(&of_classes, &classes[0]).await;
    host.patch(&classes[0], json!({"metadata": {"finalizers": null}}))
        .await;
    host.until(&of_classes, <[Value]>::is_empty).await;
    for machine in &machines {
        host.delete(&kind(MCM, "Machine"), machine).await;
    }
    host.until(&kind(MCM, "Machine"), <[Value]>::is_empty).await;
    assert_eq!(moto.instances(ACCOUNT, "terminated").len(), 2);
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
    let mut host = begin(&moto, "aws-tenants").await;
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
    host.until(&kind(MCM, "Machine"), |all| {
        all_have(&own(all), 2, made) && denied(all)
    })
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
    while !reached(
        &host
            .objects(&kind("polity.dev/v1alpha1", "CloudConnection"))
            .await,
    ) {
        tokio::time::sleep(LOOK_EVERY).await;
    }

    host.kill().await;
    for machine in host.objects(&kind(MCM, "Machine")).await {
        host.delete(&kind(MCM, "Machine"), &machine).await;
    }
    host.until(&kind(MCM, "Machine"), <[Value]>::is_empty).await;
    assert_eq!((in_each("running"), in_each("terminated")), ([0, 0], [1, 1]));
    let recorded = host.recorded();
    assert!(
        recorded.contains("assumed-role/machines/polity-"),
        "who acts is recorded"
    );
    has_none_of(&recorded, &SECRETS);
}
