//! One table of faults for three clouds. With each fault there is one VM for each object, in the end there is none, no
//! VM of another owner is touched, and no secret leaks.
//!
//! Policies, drivers and hosts are those of the examples. A proxy stands between host and cloud (`proxy.rs`).

mod aws;
mod openstack;
mod proxy;
mod set;
mod vsphere;

use std::time::Duration;

use polity_core::contract::Kind;
use polity_tests::simulation::seed::Chance;
use serde_json::Value;

use crate::process::{LOOK_EVERY, Process, has_none_of};
use proxy::{Fault, Proxy};

/// The table.
const FAULTS: [Fault; 7] = [
    Fault::LostAnswer,
    Fault::Cut,
    Fault::FailsAfterwards,
    Fault::SessionEnded,
    Fault::Truncated,
    Fault::Throttled,
    Fault::WrongClock,
];

/// A cloud with one VM in it that is nobody's, and a proxy in front of it.
trait Stage {
    /// The example that runs in it.
    const EXAMPLE: &'static str;
    /// What must be in no recording.
    const SECRETS: &'static [&'static str];

    /// The kind of the example's objects.
    fn kind() -> Kind;

    fn proxy(&self) -> &Proxy;

    /// What is replaced in the example's manifests.
    fn replaced(&self) -> Vec<(&'static str, String)>;

    /// How many VMs there are.
    fn count(&self) -> usize;

    /// How many of them are in another account that are not counted yet.
    fn count_elsewhere(&self) -> usize;

    /// Whether an object has its VM, and all that it needs.
    fn is_ready(object: &Value) -> bool;

    /// Does what the VMs of these objects do by themselves once they have booted.
    async fn boot(&self, _host: &Process, _objects: &[Value]) {}
}

/// A host of the example in front of the proxy, which does this from the beginning.
async fn begin<S: Stage>(stage: &S, fault: Fault) -> Process {
    stage.proxy().strike(fault);
    let replaced = stage.replaced();
    let replaced: Vec<(&str, &str)> = replaced.iter().map(|(from, to)| (*from, to.as_str())).collect();
    Process::begin(S::EXAMPLE, &replaced).await
}

async fn endure<S: Stage>(stage: &S) {
    let kind = S::kind();
    assert_eq!(stage.count(), 1, "somebody else's");
    let mut host = begin(stage, FAULTS[0]).await;
    let manifests = host.manifests(&kind);
    for (nth, fault) in FAULTS.into_iter().enumerate() {
        // At the first time the host does it.
        if nth > 0 {
            stage.proxy().strike(fault);
            make(&host, &manifests).await;
        }
        let objects = settle(stage, &mut host, |objects| objects.len() == manifests.len()).await;
        assert_eq!(
            stage.count(),
            1 + manifests.len(),
            "{fault:?}: one for each object"
        );
        for object in &objects {
            host.delete(&kind, object).await;
        }
        host.until(&kind, <[Value]>::is_empty).await;
        assert_eq!(
            stage.count(),
            1,
            "{fault:?}: nothing is left, and nothing else is gone"
        );
        let struck = stage.proxy().struck();
        assert!(!struck.is_empty(), "{fault:?} struck nothing");
        // For who waits for it.
        eprintln!("{fault:?}: {}", struck.into_iter().collect::<Vec<_>>().join(", "));
    }
    an_account_is_another_one(stage, &mut host, &manifests[..1]).await;
    let recorded = host.recorded();
    has_none_of(&recorded, S::SECRETS);
}

/// The answer to a create is lost, and then the credentials are those of another account, in which nothing is found.
async fn an_account_is_another_one<S: Stage>(stage: &S, host: &mut Process, manifests: &[Value]) {
    let (kind, proxy) = (S::kind(), stage.proxy());
    proxy.strike(Fault::Outage);
    make(host, manifests).await;
    let is_in_doubt = |objects: &[Value]| {
        objects
            .iter()
            .any(|object| object["status"]["pending"][0].is_object())
    };
    host.until(&kind, |objects| is_in_doubt(objects) && stage.count() == 2)
        .await;
    proxy.strike(Fault::OtherAccount);
    host.until(&kind, |_| proxy.strikes() > 5).await;
    assert_eq!(
        (stage.count(), stage.count_elsewhere()),
        (2, 0),
        "nothing is made again"
    );
    proxy.strike(Fault::None);
    for object in settle(stage, host, |objects| objects.len() == 1).await {
        assert_eq!(stage.count(), 2);
        host.delete(&kind, &object).await;
    }
    host.until(&kind, <[Value]>::is_empty).await;
    assert_eq!(stage.count(), 1);
}

async fn make(host: &Process, manifests: &[Value]) {
    for manifest in manifests {
        host.cluster.apply(manifest).await.expect("an object");
    }
}

/// Waits until there are so many objects, and each of them is ready.
async fn settle<S: Stage>(stage: &S, host: &mut Process, are_all: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    loop {
        let objects = host.objects(&S::kind()).await;
        let is_gone = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        if are_all(&objects)
            && objects
                .iter()
                .all(|object| S::is_ready(object) && !is_gone(object))
        {
            return objects;
        }
        stage.boot(host, &objects).await;
        // The host and the cloud need the processor more.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test]
async fn machines_on_ec2_survive_every_bad_day() {
    match aws::Ec2::start() {
        Ok(stage) => endure(&stage).await,
        Err(skip) => skip.print(),
    }
}

#[tokio::test]
async fn machines_on_a_vcenter_survive_every_bad_day() {
    match vsphere::VCenter::start() {
        Ok(stage) => endure(&stage).await,
        Err(skip) => skip.print(),
    }
}

#[tokio::test]
async fn routers_on_openstack_survive_every_bad_day() {
    match openstack::Stack::start() {
        Ok(stage) => endure(&stage).await,
        Err(skip) => skip.print(),
    }
}

#[tokio::test]
#[ignore = "it takes minutes: twenty kills, each at a moment by chance"]
async fn no_moment_is_bad_for_a_kill_on_ec2() {
    let stage = match aws::Ec2::start() {
        Ok(stage) => stage,
        Err(skip) => return skip.print(),
    };
    let number = std::env::var("POLITY_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut chance = Chance::new(number.unwrap_or(20_261_123), 0);
    let kind = aws::Ec2::kind();
    let mut host = begin(&stage, Fault::Late).await;
    let manifests = host.manifests(&kind);
    for nth in 0..20 {
        // A host that has just begun is busy with itself for some seconds.
        host.until(&kind, |machines| {
            machines.is_empty() || machines.iter().any(|machine| machine["status"].is_object())
        })
        .await;
        let moment = Duration::from_millis(chance.between(0, 2_000));
        // The moment of the kill is what the test is about.
        tokio::time::sleep(moment).await;
        let count = stage.count();
        eprintln!("kill {nth} after {moment:?}: {count} VMs");
        host.kill().await;
        assert!(stage.count() <= 1 + manifests.len(), "no machine has two");
        let machines = settle(&stage, &mut host, |machines| {
            [0, manifests.len()].contains(&machines.len())
        })
        .await;
        assert_eq!(stage.count(), 1 + machines.len());
        for machine in &machines {
            host.delete(&kind, machine).await;
        }
        if machines.is_empty() {
            make(&host, &manifests).await;
        }
    }
    for machine in settle(&stage, &mut host, |_| true).await {
        host.delete(&kind, &machine).await;
    }
    host.until(&kind, <[Value]>::is_empty).await;
    assert_eq!(stage.count(), 1);
    let recorded = host.recorded();
    has_none_of(&recorded, aws::Ec2::SECRETS);
}
