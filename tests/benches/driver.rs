//! Measures what the driver of EC2 spends on each operation, beside the time of the whole call. See `README.md` beside
//! this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity::clock::Clock;
use polity_clouds::{BoxFuture, Cloud};
use polity_core::call::{CloudRequest, Commit, Session};
use polity_core::contract::Failure;
use polity_drivers::{Connection, Credentials, CurrentTransport, DriverCloud, Rates};
use polity_http::login::Values;
use polity_http::{Address, Pace, Rate, Tls, Transport};
use polity_sandbox::{Compiler, Sandbox, SandboxConfig};
use polity_tests::guests;
use polity_tests::moto::Moto;
use serde_json::{Value, json};

/// How many machines come and go.
const MACHINES: usize = 50;

struct Keys;

impl Credentials for Keys {
    fn values(&self) -> BoxFuture<'_, Result<(String, Values), Failure>> {
        let values = ["accessKeyID", "secretAccessKey"].map(|key| (key.to_owned(), "AKIAEXAMPLE".to_owned()));
        Box::pin(std::future::ready(Ok(("digest".to_owned(), values.into()))))
    }
}

fn cloud(moto: &Moto) -> DriverCloud {
    let sandbox = Sandbox::new(SandboxConfig::new(Compiler::InProcess)).expect("an engine");
    let driver = std::fs::read(guests::folder().join("polity_driver_aws.wasm")).expect("it is built");
    let driver = sandbox.load_driver(&driver).expect("it loads");
    let address = Address::read(&format!("http://{}", moto.address())).expect("an address");
    let endpoints = ["ec2", "sts"].map(|name| (name.to_owned(), address.clone()));
    let transport = Transport::new(&Tls::default(), None, None).expect("a transport");
    let unbounded = Rate {
        per_second: 1e6,
        burst: 1e6,
    };
    let connection = Connection {
        name: "aws".to_owned(),
        configuration: json!({}),
        endpoints: endpoints.into(),
        region: "eu-west-1".to_owned(),
        transport: Arc::new(CurrentTransport::new(Ok(transport))),
        credentials: Some(Box::new(Keys)),
        longest: polity_clouds::catalogue::LONGEST,
        rates: Rates {
            reads: unbounded,
            changes: unbounded,
            creates: None,
        },
        hosts: Arc::default(),
        reach: Arc::default(),
        keeps: None,
    };
    DriverCloud::new(
        driver,
        connection,
        Arc::new(Pace::default()),
        Arc::new(Clock::real()),
    )
    .expect("a connection")
}

fn request(number: usize, operation: &str, arguments: Value) -> CloudRequest {
    CloudRequest {
        session: Session {
            cloud: "aws".to_owned(),
            handle: None,
            owner: format!("uid-{number}"),
            tenant: "team-a".to_owned(),
            tenant_queue: "".into(),
            namespace: Some("team-a".to_owned()),
        },
        operation: operation.to_owned(),
        arguments,
        key: None,
    }
}

/// Makes a machine, asks for it, and removes it. The time of each operation.
async fn one(
    cloud: &DriverCloud,
    number: usize,
    took: &mut BTreeMap<String, Duration>,
) -> Result<(), Failure> {
    let class = json!({"ami": "ami-12c6146b", "region": "eu-west-1", "machineType": "t3.small"});
    let name = format!("m-{number}");
    let mut known = json!({"name": name, "providerSpec": class});
    let mut note =
        |operation: &str, began: Instant| *took.entry(operation.to_owned()).or_default() += began.elapsed();

    let began = Instant::now();
    let mut create = request(number, "machine.create", known.clone());
    let prepared = cloud.prepare(create.clone()).await?;
    create.key = Some(format!("key-{number}"));
    let made = cloud
        .commit(Commit {
            request: create,
            prepared,
        })
        .await?;
    note("machine.create", began);

    known["providerID"] = made["providerID"].clone();
    for operation in ["machine.status", "machine.delete"] {
        let began = Instant::now();
        cloud.perform(request(number, operation, known.clone())).await?;
        note(operation, began);
    }
    Ok(())
}

#[tokio::main]
async fn main() {
    let moto = match Moto::start() {
        Ok(moto) => moto,
        Err(skip) => return skip.print(),
    };
    let cloud = cloud(&moto);
    let mut took = BTreeMap::new();
    for number in 0..MACHINES {
        one(&cloud, number, &mut took).await.expect("moto does it");
    }
    println!("operation        steps  fuel a step  \u{b5}s a step  ms a call  of which driver");
    for (operation, spent) in cloud.spent() {
        let calls = MACHINES as f64;
        let steps = spent.steps as f64;
        let whole = took.get(&operation).copied().unwrap_or_default().as_secs_f64();
        println!(
            "{operation:<16} {:>5.1}  {:>11.0}  {:>9.0}  {:>9.1}  {:>13.1} %",
            steps / calls,
            spent.fuel as f64 / steps,
            spent.took.as_secs_f64() * 1e6 / steps,
            whole * 1e3 / calls,
            100.0 * spent.took.as_secs_f64() / whole,
        );
    }
}
