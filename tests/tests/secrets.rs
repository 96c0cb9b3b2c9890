//! No secret leaks. Canaries stand wherever a secret can be, and a cloud repeats what it is given. Nothing
//! that policies, people or files see contains a canary, however it is spelled.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_core::contract::{Code, ObjectQuery, ObjectRef, Question};
use polity_sim::{FaultRule, SimConfig, Simulated as _, Trouble};
use polity_tests::all_workflows::scenario::{Workflow, identities};
use polity_tests::all_workflows::setting::{self, TRUSTED};
use polity_tests::host_fixture;
use polity_tests::host_harness::capa::CAPA;
use polity_tests::host_harness::mcm::MCM;
use polity_tests::host_harness::{Host, Site};
use serde_json::{Value, json};

/// With everything that is spelled differently somewhere.
const USER_DATA: &str = "c4nary-of-user-data \"quoted\" & a/slash\nand+a second line";
const ACCESS_KEY: &str = "c4nary/of+the/secret=access key";
const SESSION: &str = "c4nary-of-a-session-token";
const UNASKED: &str = "c4nary-that-nobody-asked-for";

/// A cloud that repeats what it was told, once for each value and operation, and then does what it should.
fn careless() -> SimConfig {
    let mut cloud = SimConfig::default();
    identities(&mut cloud);
    let repeats = [
        ("sts.get-caller-identity", "SecretAccessKey", Code::Unavailable),
        ("sts.assume-role", "SessionToken", Code::Unavailable),
        ("machine.create", "userData", Code::Internal),
        ("machine.create", "bootstrapToken", Code::Unavailable),
        ("machine.create", "session", Code::Unavailable),
        ("vm.*", "session", Code::Unavailable),
    ];
    cloud.faults = repeats
        .map(|(operation, what, code)| {
            let fail = Trouble::Fail {
                code,
                message: Some(format!("cannot use {{{what}}} here")),
                retry_after: None,
            };
            FaultRule {
                count: Some(1),
                ..FaultRule::new(operation, fail)
            }
        })
        .to_vec();
    cloud
}

/// Every way in which a value may be spelled.
fn spellings(value: &str) -> BTreeMap<&'static str, String> {
    let base64 = |skip: usize| {
        let padded = [&vec![b'x'; skip][..], value.as_bytes()].concat();
        let text = base64(&padded);
        // What depends on the bytes around it is left out.
        let (from, to) = ([0, 2, 3][skip], text.trim_end_matches('=').len() - 2);
        text[from..to].to_owned()
    };
    let json = Value::from(value).to_string();
    let url: String = value
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect();
    BTreeMap::from([
        ("raw", value.to_owned()),
        ("base64 at 0", base64(0)),
        ("base64 at 1", base64(1)),
        ("base64 at 2", base64(2)),
        ("JSON", json[1..json.len() - 1].to_owned()),
        ("JSON in JSON", {
            let twice = Value::from(json[1..json.len() - 1].to_owned()).to_string();
            twice[1..twice.len() - 1].to_owned()
        }),
        ("URL", url),
    ])
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let wide =
            chunk.iter().fold(0u32, |wide, byte| wide << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(ALPHABET[(wide >> (18 - 6 * place) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All that anybody gets to see, by where it was found.
async fn seen(site: &Site, recording: &Path, log: &Log) -> Vec<(String, String)> {
    let mut seen = vec![("logs".to_owned(), text(&log.0.lock().expect("a lock")))];
    for entry in std::fs::read_dir(recording.join("passes")).expect("a recording") {
        let path = entry.expect("an entry").path();
        assert!(
            path.extension().is_some_and(|kind| kind == "jsonl"),
            "compressed, nothing would be found in {path:?}"
        );
        seen.push((
            "recording".to_owned(),
            text(&std::fs::read(&path).expect("a segment")),
        ));
    }
    let kinds = [
        (MCM, "Machine"),
        (MCM, "MachineClass"),
        ("capv.polity.dev/v1alpha1", "Machine"),
        (CAPA, "AWSCluster"),
        (CAPA, "AWSClusterStaticIdentity"),
        ("polity.dev/v1alpha1", "PolicyBinding"),
        ("v1", "Event"),
        ("v1", "Node"),
        ("coordination.k8s.io/v1", "Lease"),
    ];
    for (api_version, kind) in kinds {
        for object in site.list(api_version, kind).await.iter() {
            seen.push((kind.to_owned(), object.to_string()));
        }
    }
    for (namespace, name) in [
        (TRUSTED, "user-data"),
        (TRUSTED, "unasked"),
        ("capa-system", "access-key"),
    ] {
        let secret = Question::Secret(reference("Secret", namespace, name));
        let answer = site.cluster.read(&secret).await;
        seen.push((
            format!("what is answered of Secret {name}"),
            format!("{answer:?}"),
        ));
    }
    seen
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn reference(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: polity_core::contract::Kind {
            api_version: "v1".into(),
            kind: kind.into(),
        },
        namespace: Some(namespace.into()),
        name: name.into(),
    }
}

#[test]
fn every_spelling_of_a_value_is_looked_for() {
    let found = spellings("hunter2 & more");
    assert!(base64(b"xhunter2 & more, and more").contains(&found["base64 at 1"]));
    assert!(base64(b"xyhunter2 & more, and more").contains(&found["base64 at 2"]));
    assert!(base64(b"xyzhunter2 & more").contains(&found["base64 at 0"]));
    assert_eq!(found["URL"], "hunter2%20%26%20more");
}

#[tokio::test(start_paused = true)]
async fn nothing_that_anybody_sees_holds_a_secret() {
    let log = Log::default();
    let writer = log.clone();
    let logger = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(logger);

    let cloud = serde_json::to_value(careless()).expect("a configuration is JSON");
    let mut site = Site::new(1, Some(cloud));
    let recording = tempfile::tempdir().expect("a folder");
    site.record(recording.path());
    let tenants = [Workflow::CapvMachines, Workflow::McmMachines, Workflow::Clusters];
    setting::prepare(&site, &tenants).await;
    let secret = |namespace: &str, name: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"namespace": namespace, "name": name},
        })
    };
    let key = json!({"AccessKeyID": "AKIAEXAMPLE", "SecretAccessKey": ACCESS_KEY, "SessionToken": SESSION});
    for object in [
        secret(TRUSTED, "user-data", json!({"userData": USER_DATA})),
        secret(TRUSTED, "unasked", json!({"key": UNASKED})),
        secret("capa-system", "access-key", key),
        setting::mcm_machine(TRUSTED, "m-1", "singles"),
    ] {
        site.cluster.apply(&object).await.expect("it is applied");
    }
    site.play_kubelets();
    let host = site.start();
    let token = run(&site, &host).await;
    let sessions: Vec<String> = site
        .clouds
        .all()
        .iter()
        .filter_map(|cloud| cloud.simulation())
        .flat_map(|sim| sim.inspect(|sim, _| sim.session_tokens().map(str::to_owned).collect::<Vec<_>>()))
        .collect();
    assert!(!sessions.is_empty(), "nobody opened a session");

    let seen = seen(&site, recording.path(), &log).await;
    let repeated: usize = seen
        .iter()
        .map(|(_, text)| text.matches("[redacted]").count())
        .sum();
    assert!(
        repeated >= careless().faults.len(),
        "the cloud repeated {repeated} values"
    );
    let planted = [
        USER_DATA,
        "c4nary-of-user-data",
        ACCESS_KEY,
        SESSION,
        UNASKED,
        &token,
    ];
    for canary in planted.into_iter().chain(sessions.iter().map(String::as_str)) {
        for (how, spelled) in spellings(canary) {
            for (place, text) in &seen {
                assert!(!text.contains(&spelled), "{canary:?} is seen ({how}) in {place}");
            }
        }
    }
}

/// Waits until the machines of both policies run; the token with which one of them joined, before it was revoked.
async fn run(site: &Site, host: &Host) -> String {
    let mut known = None;
    let (mcm, capv) = (
        host_fixture::reference(MCM, "Machine", Some(TRUSTED), "m-1"),
        host_fixture::reference("capv.polity.dev/v1alpha1", "Machine", Some(TRUSTED), "vm"),
    );
    for _ in 0..7_200 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let machines = (site.get(&mcm).await, site.get(&capv).await);
        let (Some(mcm), Some(capv)) = machines else {
            continue;
        };
        if let (None, Some(minted)) = (&known, minted(host)) {
            let uid = mcm["metadata"]["uid"].as_str().unwrap_or_default();
            known = Some(token(site, &minted, uid).await);
        }
        if mcm["status"]["currentStatus"]["phase"] == "Running" && capv["status"]["phase"] == "Running" {
            return known.expect("a token was minted");
        }
    }
    panic!(
        "the machines do not run: {:?} {:?}",
        site.get(&mcm).await,
        site.get(&capv).await
    );
}

/// The reference of the token that the host made: the token is a secret too.
fn minted(host: &Host) -> Option<String> {
    host.passes_of("m-1").iter().find_map(|pass| {
        let journal = serde_json::to_string(&pass.roles).expect("JSON");
        let (_, rest) = journal.split_once("minted:")?;
        Some(rest[..rest.find(['\\', '"'])?].to_owned())
    })
}

/// The token's value, which only a cloud is told.
async fn token(site: &Site, minted: &str, uid: &str) -> String {
    let query = ObjectQuery {
        object: reference("Secret", "kube-system", minted),
        projection: Vec::new(),
        latest: true,
    };
    let refused = site.cluster.read(&Question::Object(query)).await;
    assert!(refused.is_err(), "a Secret is read: {refused:?}");
    let values = site
        .cluster
        .secret_values(None, &format!("minted:{minted}"), uid)
        .await
        .expect("the token's values");
    text(&values.values["token"])
}
