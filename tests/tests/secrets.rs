//! No secret is seen: canaries are planted wherever a secret can be, a cloud repeats what it was told, and nothing that
//! policies, people or files get to see holds one of them, however it is spelled.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use polity_core::contract::{ObjectQuery, ObjectRef, Question};
use polity_tests::whole::Site;
use polity_tests::whole::story::Story;
use serde_json::{Value, json};

/// With everything that is spelled differently somewhere.
const USER_DATA: &str = "c4nary-of-user-data \"quoted\" & a/slash\nand+a second line";

fn machine() -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"namespace": "default", "name": "m-1", "labels": {"name": "workers"}},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineClass",
        "metadata": {"namespace": "default", "name": "small", "finalizers": ["mcm.polity.dev/machine-class"]},
        "spec": {
            "secretRef": {"name": "user-data"}, "providerSpec": {},
            "nodeTemplate": {
                "capacity": {"cpu": "2", "memory": "4Gi"}, "instanceType": "small", "region": "here", "zone": "a",
            },
        },
    })
}

fn binding() -> Value {
    let everywhere = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "namespaces": ["*"]});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "relation": {"theirs": "spec.providerID", "ours": "status.providerID"},
    });
    let own = |kind: &str| json!({"apiVersion": "mcm.polity.dev/v1alpha1", "kind": kind});
    let attachment = everywhere("storage.k8s.io/v1", "VolumeAttachment");
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "mcm-machine"},
        "spec": {
            "governs": own("Machine"),
            "policies": {"lifecycle": {"file": "mcm_machine.wasm", "configuration": {"safety": ""}}},
            "cloud": {"name": "sim"},
            "grants": [
                {"ask": own("MachineClass")}, {"ask": own("Machine")},
                {"ask": {"apiVersion": "mcm.polity.dev/v1alpha1", "kind": "MachineSafety", "name": "cluster"}},
                {"ask": node}, {"patch": node}, {"delete": node},
                {"ask": everywhere("v1", "Pod")}, {"delete": everywhere("v1", "Pod")},
                {"evict": everywhere("v1", "Pod")},
                {"ask": everywhere("policy/v1", "PodDisruptionBudget")},
                {"ask": everywhere("v1", "PersistentVolumeClaim")},
                {"ask": attachment}, {"delete": attachment},
                {"secrets": {}}, {"permit": ["deployment/*"]}, {"mint": ["bootstrap-token"]},
                {"cloud": ["machine.*", "token.revoke"]},
            ],
        },
    })
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
        .map(
            |byte| match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            },
        )
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
            match place <= chunk.len() {
                true => text.push(char::from(ALPHABET[(wide >> (18 - 6 * place) & 63) as usize])),
                false => text.push('='),
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
async fn seen(story: &Story, recording: &std::path::Path, log: &Log) -> Vec<(String, String)> {
    let mut seen = vec![("logs".to_owned(), text(&log.0.lock().expect("a lock")))];
    for entry in std::fs::read_dir(recording.join("passes")).expect("a recording") {
        let path = entry.expect("an entry").path();
        seen.push((
            "recording".to_owned(),
            text(&std::fs::read(&path).expect("a segment")),
        ));
    }
    let kinds = [
        ("mcm.polity.dev/v1alpha1", "Machine"),
        ("mcm.polity.dev/v1alpha1", "MachineClass"),
        ("polity.dev/v1alpha1", "PolicyBinding"),
        ("v1", "Event"),
        ("v1", "Node"),
        ("coordination.k8s.io/v1", "Lease"),
    ];
    for (api_version, kind) in kinds {
        for object in story.site.list(api_version, kind).await {
            seen.push((kind.to_owned(), object.to_string()));
        }
    }
    for name in ["user-data", "access-key"] {
        let secret = Question::Secret(reference("Secret", "default", name));
        let answer = story.site.cluster.read(&secret).await;
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

    // A cloud that repeats what it was told, twice, and then does what it should.
    let repeats = |what: &str, code: &str| {
        let fail = json!({"code": code, "message": format!("cannot use {{{what}}} here")});
        json!({"operation": "machine.create", "count": 1, "then": {"fail": fail}})
    };
    let faults = [
        repeats("userData", "internal"),
        repeats("bootstrapToken", "unavailable"),
    ];
    let site = Site::new(1, Some(json!({"faults": faults})));
    let recording = tempfile::tempdir().expect("a folder");
    let story = Story::begin(site, binding(), &machine(), Some(recording.path())).await;
    story.site.play_kubelets();
    for (name, data) in [
        ("user-data", USER_DATA),
        ("access-key", "c4nary-that-nobody-asked-for"),
    ] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"userData": data},
            "metadata": {"namespace": "default", "name": name},
        });
        story.create(&secret).await;
    }
    story.create(&class()).await;
    story.create(&machine()).await;
    story.until_is("status.currentStatus.phase", "Running").await;

    // The token that the host made is a secret too.
    let minted = story.passes().iter().find_map(|pass| {
        let journal = serde_json::to_string(&pass.roles).expect("JSON");
        let (_, rest) = journal.split_once("minted:")?;
        Some(rest[..rest.find(['\\', '"'])?].to_owned())
    });
    let minted = minted.expect("a token was minted");
    let query = ObjectQuery {
        object: reference("Secret", "kube-system", &minted),
        projection: Vec::new(),
        latest: true,
    };
    let refused = story.site.cluster.read(&Question::Object(query)).await;
    assert!(refused.is_err(), "a Secret is read: {refused:?}");
    let uid = story.object().await["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let values = story
        .site
        .cluster
        .secret_values(None, &format!("minted:{minted}"), &uid)
        .await
        .expect("the token's values");
    let token = text(&values.values["token"]);

    let seen = seen(&story, recording.path(), &log).await;
    assert!(
        seen.iter().any(|(_, text)| text.contains("[redacted]")),
        "the cloud repeated nothing"
    );
    for canary in [
        USER_DATA,
        "c4nary-of-user-data",
        "c4nary-that-nobody-asked-for",
        &token,
    ] {
        for (how, spelled) in spellings(canary) {
            for (place, text) in &seen {
                assert!(!text.contains(&spelled), "{canary:?} is seen ({how}) in {place}");
            }
        }
    }
}
