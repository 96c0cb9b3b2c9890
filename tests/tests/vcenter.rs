//! The policy of machines on vSphere: the driver is a component, the host a process, and govmomi's simulator the
//! vCenter.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::contract::Kind;
use polity_tests::simulation::seed::Chance;
use polity_tests::vcsim::{Vcsim, Vm};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::process::{Process, has_none_of};

/// The password that stands in a Secret of the example.
pub(crate) const SECRET: &str = "simulated-p4ssword";
/// The token in the user data that stands in another Secret.
pub(crate) const TOKEN: &str = "simul8.t0kenofweb1notreal";
/// An answer that comes later than its clone ends.
const LATE: [&str; 4] = ["-clone", "200ms", "-late", "3s"];

pub(crate) fn kind() -> Kind {
    Kind {
        api_version: "capv.polity.dev/v1alpha1".into(),
        kind: "Machine".into(),
    }
}

async fn begin(vcsim: &Vcsim) -> Process {
    let replaced = [
        ("127.0.0.1:8989", vcsim.address()),
        ("requeuePeriod: 5s", "requeuePeriod: 1s"),
    ];
    Process::begin("vsphere-machines", &replaced).await
}

pub(crate) fn is_running(machine: &Value) -> bool {
    machine["status"]["phase"] == "Running" && machine["metadata"].get("deletionTimestamp").is_none()
}

fn are_running(machines: &[Value]) -> bool {
    machines.len() == 2 && machines.iter().all(is_running)
}

/// Whether a clone is on its way, and may have been sent.
fn is_in_doubt(machine: &Value) -> bool {
    machine["status"]["pending"][0].is_object()
}

/// The VMs that the machines of the example should have.
fn wanted(host: &Process, machines: &[Value]) -> Vec<Vm> {
    let mut vms: Vec<Vm> = machines.iter().map(|machine| wanted_vm(host, machine)).collect();
    vms.sort();
    vms
}

fn wanted_vm(host: &Process, machine: &Value) -> Vm {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    Vm {
        name: text(&machine["metadata"]["name"]),
        uuid: text(&machine["metadata"]["uid"]),
        is_on: true,
        cpus: machine["spec"]["numCPUs"].to_string(),
        memory: machine["spec"]["memoryMiB"].to_string(),
        has_disk_uuids: true,
        user_data: user_data(host, machine).map(|data| (STANDARD.encode(data), "base64".to_owned())),
    }
}

/// What the Secret of a machine says, if the machine names one.
fn user_data(host: &Process, machine: &Value) -> Option<String> {
    let name = machine["spec"]["bootstrap"]["dataSecretName"].as_str()?;
    let secrets = host.manifests(&Kind {
        api_version: "v1".into(),
        kind: "Secret".into(),
    });
    let secret = secrets.iter().find(|secret| secret["metadata"]["name"] == name);
    let value = &secret.expect("the example has it")["stringData"]["value"];
    Some(value.as_str().expect("a text").to_owned())
}

/// Neither the password nor the user data, in no encoding, stands in what was recorded.
fn assert_nothing_leaks(host: &Process, user_data: &str) {
    assert!(user_data.contains(TOKEN));
    let recorded = host.recorded();
    assert!(recorded.contains("vm.clone"));
    has_none_of(&recorded, &[SECRET, TOKEN, &STANDARD.encode(user_data)]);
}

#[tokio::test]
async fn machines_come_and_go_on_a_vcenter_however_often_the_host_is_killed() {
    let vcsim = match Vcsim::start(&LATE) {
        Ok(vcsim) => vcsim,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&vcsim).await;
    // Both clones have ended, and an answer is still held back: the host that is killed never knew.
    host.until(&kind(), |machines| {
        machines.iter().any(is_in_doubt) && vcsim.vms().len() == 2
    })
    .await;
    host.kill().await;
    let machines = host.until(&kind(), are_running).await;
    assert_eq!(
        vcsim.vms(),
        wanted(&host, &machines),
        "one for each machine, as it says"
    );
    let sent: Vec<String> = machines
        .iter()
        .filter_map(|machine| user_data(&host, machine))
        .collect();
    assert_eq!(sent.len(), 1, "one machine has user data, the other none");
    for (machine, network) in machines.iter().zip(["VM Network", "DC0_DVPG0"]) {
        let status = &machine["status"];
        let nic = &status["network"][0];
        assert_eq!(
            (&nic["networkName"], &nic["connected"]),
            (&network.into(), &true.into())
        );
        assert_eq!(nic["ipAddrs"], status["addresses"]);
        assert!(
            status["addresses"][0].as_str().expect("one").starts_with("10.0."),
            "{status}"
        );
    }
    assert!(
        host.recorded().contains("CAPV-37"),
        "the clone in doubt was found"
    );

    for machine in &machines {
        host.delete(&kind(), machine).await;
    }
    host.kill().await;
    host.until(&kind(), <[Value]>::is_empty).await;
    assert_eq!(vcsim.vms(), []);
    assert_nothing_leaks(&host, &sent[0]);
}

/// The guest of the vCenter reads the properties of an OVA before its metadata, and its template has some.
#[tokio::test]
async fn the_machine_of_an_ova_template_gets_the_address_of_its_metadata() {
    let vcsim = match Vcsim::start(&[]) {
        Ok(vcsim) => vcsim,
        Err(skip) => return skip.print(),
    };
    let replaced = [
        ("127.0.0.1:8989", vcsim.address()),
        ("requeuePeriod: 5s", "requeuePeriod: 1s"),
        ("VM Network, dhcp4: true", "VM Network, ipAddrs: [10.7.0.5/24]"),
    ];
    let mut host = Process::begin("vsphere-machines", &replaced).await;
    let machines = host.until(&kind(), are_running).await;
    assert_eq!(machines[0]["status"]["addresses"], json!(["10.7.0.5"]));
    assert_eq!(vcsim.vms(), wanted(&host, &machines));
}

/// An authority, and what it says of the server of this machine: the certificate of the one, certificate and key of the other.
pub(crate) fn certified() -> [String; 3] {
    let made = || -> Result<[String; 3], rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let trusted = authority.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate()?;
        let server = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
        Ok([trusted, server.pem(), key.serialize_pem()])
    };
    made().expect("certificates")
}

/// Waits until the connection is reached or not, for this reason.
async fn until_reached(host: &mut Process, status: &str, words: &str) {
    let connection = Kind {
        api_version: "polity.dev/v1alpha1".into(),
        kind: "CloudConnection".into(),
    };
    let is_so = |all: &[Value]| {
        let mut conditions = all
            .iter()
            .flat_map(|one| one["status"]["conditions"].as_array().into_iter().flatten());
        conditions.any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "Reachable" && condition["status"] == status && message.contains(words)
        })
    };
    host.until(&connection, is_so).await;
}

#[tokio::test]
async fn a_vcenter_whose_certificate_or_whose_password_is_wrong_is_asked_for_nothing() {
    let [trusted, certificate, key] = certified();
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let files = [
        file("server.pem", &certificate),
        file("server.key", &key),
        file("ca.pem", &trusted),
    ];
    let vcsim = match Vcsim::start(&["-cert", &files[0], "-key", &files[1], "-known", &files[2]]) {
        Ok(vcsim) => vcsim,
        Err(skip) => return skip.print(),
    };
    let address = format!("https://{}", vcsim.address());
    let replaced = [
        ("http://127.0.0.1:8989", &*address),
        ("requeuePeriod: 5s", "requeuePeriod: 1s"),
        (SECRET, "not-the-p4ssword"),
    ];
    let mut host = Process::begin("vsphere-machines", &replaced).await;
    until_reached(&mut host, "False", "certificate").await;

    let bundle = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "polity-system", "name": "vcenter-ca"},
        "data": {"ca.crt": trusted},
    });
    host.cluster.apply(&bundle).await.expect("a bundle");
    let connection = json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "CloudConnection", "metadata": {"name": "vsphere"},
    });
    // The server takes any certificate of its authority.
    let own = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "polity-system", "name": "own"},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": certificate, "tls.key": key},
    });
    host.cluster.apply(&own).await.expect("a Secret");
    let known = json!({"spec": {
        "caBundle": {"configMap": {"namespace": "polity-system", "name": "vcenter-ca"}},
        "clientCertificate": {"namespace": "polity-system", "name": "own"},
    }});
    host.patch(&connection, known).await;
    until_reached(&mut host, "False", "vCenter refuses: Login failure").await;
    let machines = host.objects(&kind()).await;
    assert!(
        machines.iter().all(|machine| !is_in_doubt(machine)),
        "{machines:?}"
    );

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "polity-system", "name": "vsphere"},
    });
    host.patch(&secret, json!({"stringData": {"password": SECRET}}))
        .await;
    until_reached(&mut host, "True", "").await;
    host.until(&kind(), are_running).await;
    let line_of_key = key.lines().nth(1).expect("a key");
    has_none_of(
        &host.recorded(),
        &[SECRET, TOKEN, "not-the-p4ssword", line_of_key],
    );
}

#[tokio::test]
async fn a_host_that_is_told_to_end_logs_out() {
    let vcsim = match Vcsim::start(&[]) {
        Ok(vcsim) => vcsim,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&vcsim).await;
    host.until(&kind(), |machines| machines.iter().any(is_running))
        .await;
    assert_eq!(vcsim.sessions(), 1, "one login for all");
    assert!(host.terminate().success());
    assert_eq!(vcsim.sessions(), 0);
}

#[tokio::test]
#[ignore = "it takes minutes: twenty kills, each at a moment by chance"]
async fn no_moment_is_bad_for_a_kill() {
    let vcsim = match Vcsim::start(&["-clone", "700ms", "-late", "500ms"]) {
        Ok(vcsim) => vcsim,
        Err(skip) => return skip.print(),
    };
    let number = std::env::var("POLITY_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut chance = Chance::new(number.unwrap_or(20_260_101), 0);
    let mut host = begin(&vcsim).await;
    let is_at_rest = |machines: &[Value]| machines.is_empty() || are_running(machines);
    let mut before = Vec::new();
    for nth in 0..20 {
        // Some are killed soon after they found out what the one before had done, the others in the middle of something new.
        if nth > 0 && chance.one_in(250) {
            host.until(&kind(), |machines| machines != before || is_at_rest(machines))
                .await;
        } else if nth > 0 {
            host.until(&kind(), is_at_rest).await;
            turn(&mut host).await;
        }
        let moment = Duration::from_millis(chance.between(0, 3_500));
        tokio::time::sleep(moment).await;
        let machines = host.objects(&kind()).await;
        let states: Vec<String> = machines.iter().map(state).collect();
        let vms = vcsim.vms().len();
        // For who waits for it.
        let _ = writeln!(
            std::io::stderr(),
            "kill {nth} after {moment:?}: {states:?}, {vms} VMs"
        );
        host.kill().await;
        let names: Vec<String> = vcsim.vms().into_iter().map(|vm| vm.name).collect();
        assert!(
            names.is_sorted_by(|one, other| one < other),
            "one for each machine: {names:?}"
        );
        before = machines;
    }
    if host.until(&kind(), is_at_rest).await.is_empty() {
        turn(&mut host).await;
    }
    let machines = host.until(&kind(), are_running).await;
    assert_eq!(vcsim.vms(), wanted(&host, &machines));
    turn(&mut host).await;
    host.until(&kind(), <[Value]>::is_empty).await;
    assert_eq!(vcsim.vms(), []);
    assert!(!host.recorded().contains(SECRET));
}

/// How a machine stands, for people.
fn state(machine: &Value) -> String {
    let phase = machine["status"]["phase"].as_str().unwrap_or("-");
    let in_doubt = if is_in_doubt(machine) { " in doubt" } else { "" };
    format!("{phase}{in_doubt}")
}

/// Gives the host something to do: machines that all run are deleted, and where there are none, there are two again.
async fn turn(host: &mut Process) {
    let machines = host.objects(&kind()).await;
    if are_running(&machines) {
        for machine in &machines {
            host.delete(&kind(), machine).await;
        }
    }
    if machines.is_empty() {
        for manifest in host.manifests(&kind()) {
            host.cluster.apply(&manifest).await.expect("a machine");
        }
    }
}
