//! Behaviours that break no rule but take as much as the rules allow, again and again.

use std::hint::black_box;

use polity_sdk::contract::{Act, ObjectPatch, ObjectRef, Precondition};
use polity_sdk::prelude::*;
use polity_sdk::{cluster, join};

use crate::{Config, Thing};

/// The kinds of greed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Greed {
    /// Computes for as long as a step may.
    Burn,
    /// Computes for as long as a step may, but only in every twenty-fifth object. So it looks cheap most of the time.
    Spikes,
    /// Computes and asks one more question, ten times.
    Steps,
    /// Fills the memory of a step.
    Fill,
    /// Asks for nine hundred lists in one step.
    Lists,
    /// Asks for nine hundred lists in one step, each in the words of a whole kilobyte.
    Asks,
    /// Asks for as much as a journal can hold.
    Answers,
    /// Asks for two hundred and fifty parts of a large object.
    Parts,
    /// Writes the status of a large object.
    Writes,
    /// Asks for a large object, and changes it.
    Acts,
    /// Acts with a document that takes far more memory than its text has bytes.
    Documents,
    /// Asks for two hundred lists that nobody else asks for, and changes the one object that is in all of them.
    Changes,
    /// Asks for one list, and waits until it changes.
    Crowd,
    /// Asks for two hundred lists that nobody else asks for and that are empty, and waits until one changes.
    Nothing,
}

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: std::collections::BTreeMap<String, String>,
}

impl Kind for ConfigMap {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ConfigMap";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The number of rounds that use a little less than ten million units of fuel.
const ROUNDS: u64 = 900_000;

impl Greed {
    /// When it does so again.
    pub fn next(self) -> Next {
        match self {
            Greed::Crowd | Greed::Nothing => Next::settled(),
            _ => Next::after(Duration::from_millis(1)),
        }
    }

    /// Behaves in this way.
    pub async fn take(self, cx: &Context<Thing, Config>) {
        match self {
            Greed::Burn => burn(ROUNDS),
            Greed::Spikes => {
                let name = &cx.object().metadata().name;
                let number = name
                    .rsplit('-')
                    .next()
                    .and_then(|number| number.parse::<u64>().ok());
                if number.is_some_and(|number| number.is_multiple_of(25)) {
                    burn(ROUNDS);
                }
            }
            Greed::Steps => {
                for n in 0..10 {
                    burn(ROUNDS / 10);
                    let _ = cx.ask(cluster::object::<ConfigMap>(&format!("map-{n}"))).await;
                }
            }
            Greed::Fill => {
                let mut all = vec![0_u8; 14 << 20];
                for page in all.chunks_mut(4_096) {
                    page[0] = black_box(1);
                }
                black_box(all);
            }
            Greed::Lists => {
                let ask = |n| cluster::objects::<ConfigMap>().labels(&format!("a!=x{n}"));
                let _ = join::join_all((0..900).map(|n| cx.ask(ask(n)))).await;
            }
            Greed::Asks => {
                // Nothing has such a label, so the answers are short.
                let values: Vec<String> = (0..16).map(|n| format!("{n:0>63}")).collect();
                let values = values.join(",");
                let ask = |n| cluster::objects::<ConfigMap>().labels(&format!("none in (x{n},{values})"));
                let _ = join::join_all((0..900).map(|n| cx.ask(ask(n)))).await;
            }
            Greed::Parts => {
                let ask = |n| cluster::object::<ConfigMap>("large-0").keep(&[&format!("metadata.part-{n}")]);
                let _ = join::join_all((0..250).map(|n| cx.ask(ask(n)))).await;
            }
            Greed::Writes => {
                let turn = cx.object().status.turn.unwrap_or_default();
                cx.object_mut().status.turn = Some(turn + 1);
            }
            Greed::Acts => {
                let name = &cx.object().metadata().name;
                let large = name.bytes().last().map_or(0, |digit| digit % 4);
                let ask = cluster::object::<ConfigMap>(&format!("many-{large}")).keep(&["metadata"]);
                if let Ok(map) = cx.ask(ask).await {
                    let change = serde_json::json!({"data": {"changed": format!("{name} {:?}", cx.now())}});
                    let _ = cx.act(cluster::patch(&map, change).any_version()).await;
                }
            }
            Greed::Documents => {
                let _ = cx.act(numbers(100_000)).await;
            }
            Greed::Changes => {
                let name = &cx.object().metadata().name;
                let ask = |n| cluster::objects::<ConfigMap>().labels(&format!("a,a!={name}-{n}"));
                let _ = join::join_all((0..200).map(|n| cx.ask(ask(n).keep(&["metadata"])))).await;
                if let Ok(map) = cx.ask(cluster::object::<ConfigMap>("map-0")).await {
                    let change = serde_json::json!({"data": {"changed": format!("{name} {:?}", cx.now())}});
                    let _ = cx.act(cluster::patch(&map, change).any_version()).await;
                }
            }
            Greed::Crowd => {
                let _ = cx.ask(cluster::objects::<ConfigMap>().labels("a")).await;
            }
            Greed::Nothing => {
                let name = &cx.object().metadata().name;
                let ask = |n| cluster::objects::<ConfigMap>().labels(&format!("none={name}-{n}"));
                let _ = join::join_all((0..200).map(|n| cx.ask(ask(n).keep(&["metadata"])))).await;
            }
            Greed::Answers => {
                let ask = |n| cluster::object::<ConfigMap>(&format!("large-{n}"));
                let _ = join::join_all((0..16).map(|n| cx.ask(ask(n)))).await;
            }
        }
    }
}

/// A patch with a list of so many numbers, of an object that no binding grants.
fn numbers(count: usize) -> Act {
    Act::Patch(ObjectPatch {
        object: ObjectRef {
            cluster: None,
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: None,
            name: "node".into(),
        },
        precondition: Precondition {
            uid: "uid".into(),
            resource_version: None,
        },
        subresource: None,
        patch: format!(r#"{{"data":[0{}]}}"#, ",0".repeat(count)),
    })
}

fn burn(rounds: u64) {
    let mut n = 0_u64;
    for _ in 0..rounds {
        n = black_box(n.wrapping_add(1));
    }
    black_box(n);
}
