//! Pods and budgets change in random order: each budget fits its pods, and no eviction ignores a budget.

use std::sync::Arc;

use crate::thing_fixture::{Seconds, client, raw};
use kube::Client;
use polity_standalone::Store;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const MERGE: [(&str, &str); 1] = [("content-type", "application/merge-patch+json")];
/// As many pods and labels as are needed so that all of them meet within the steps.
const NAMES: u64 = 8;
const STEPS: u32 = 400;

/// Pseudo-random numbers that are the same each time (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

struct World {
    client: Client,
    dice: Dice,
    refused: u32,
    evicted: u32,
}

impl World {
    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let headers = if method == "PATCH" { &MERGE[..] } else { &[] };
        raw(&self.client, method, path, headers, &body.to_string()).await
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let (_, list) = raw(&self.client, "GET", path, &[], "").await;
        list["items"].as_array().unwrap().clone()
    }

    async fn step(&mut self) {
        let name = format!("p{}", self.dice.roll(NAMES));
        let pod = format!("{PODS}/{name}");
        let app = ["a", "b", "c"][self.dice.roll(3) as usize];
        let ready = ["True", "False"][self.dice.roll(4) as usize / 3];
        match self.dice.roll(9) {
            0..=2 => {
                let body = json!({
                    "metadata": { "name": name, "labels": { "app": app } }, "spec": { "nodeName": "n" },
                });
                self.send("POST", PODS, body).await;
                let status =
                    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
                self.send("PATCH", &format!("{pod}/status"), json!({ "status": status }))
                    .await;
            }
            3 => {
                let body = json!({ "metadata": { "labels": { "app": app } } });
                self.send("PATCH", &pod, body).await;
            }
            4 => {
                let body = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
                self.send("PATCH", &format!("{pod}/status"), body).await;
            }
            5 => {
                let grace = self.dice.roll(2) * 30;
                self.send("DELETE", &pod, json!({ "gracePeriodSeconds": grace }))
                    .await;
            }
            6 => {
                let spec = [
                    json!({ "minAvailable": 2, "maxUnavailable": null }),
                    json!({ "minAvailable": "60%", "maxUnavailable": null }),
                    json!({ "minAvailable": null, "maxUnavailable": 1 }),
                ];
                let spec = spec[self.dice.roll(3) as usize].clone();
                let budget = format!("{BUDGETS}/{}", ["a", "b"][self.dice.roll(2) as usize]);
                self.send("PATCH", &budget, json!({ "spec": spec })).await;
            }
            _ => self.evict(&name).await,
        }
    }

    async fn evict(&mut self, name: &str) {
        let pods = self.list(PODS).await;
        let Some(pod) = pods.iter().find(|pod| pod["metadata"]["name"] == name) else {
            return;
        };
        let serves = is_healthy(pod);
        let app = pod["metadata"]["labels"]["app"].clone();
        let path = format!("{PODS}/{name}/eviction");
        let (code, answer) = self
            .send("POST", &path, json!({ "metadata": { "name": name } }))
            .await;
        let budgets = self.list(BUDGETS).await;
        let budget = budgets.iter().find(|budget| budget["metadata"]["name"] == app);
        match (code, budget) {
            (201, Some(budget)) if serves => {
                let count = |field: &str| budget["status"][field].as_i64().unwrap();
                assert!(count("currentHealthy") >= count("desiredHealthy"), "{budget}");
                self.evicted += 1;
            }
            (201, _) => {}
            (429, Some(_)) => self.refused += 1,
            _ => panic!("{code} {answer}"),
        }
    }

    /// Checks every budget against a count of its pods.
    async fn check(&self) {
        let pods = self.list(PODS).await;
        for budget in self.list(BUDGETS).await {
            let (metadata, status) = (&budget["metadata"], &budget["status"]);
            let covered: Vec<&Value> = pods
                .iter()
                .filter(|pod| pod["metadata"]["labels"]["app"] == metadata["name"])
                .collect();
            let expected = covered.len() as i64;
            let healthy = covered.iter().filter(|pod| is_healthy(pod)).count() as i64;
            let spec = &budget["spec"];
            let desired = if spec["maxUnavailable"] == 1 {
                (expected - 1).max(0)
            } else if spec["minAvailable"] == "60%" {
                (expected as f64 * 0.6).ceil() as i64
            } else {
                2
            };
            let allowed = if expected > 0 {
                (healthy - desired).max(0)
            } else {
                0
            };
            let found = [
                "expectedPods",
                "currentHealthy",
                "desiredHealthy",
                "disruptionsAllowed",
            ];
            let found = found.map(|field| status[field].as_i64().unwrap());
            assert_eq!(found, [expected, healthy, desired, allowed], "{budget}");
            assert_eq!(status["observedGeneration"], metadata["generation"]);
            assert_eq!(status.get("disruptedPods"), None);
        }
    }
}

fn is_healthy(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_none() && pod["status"]["conditions"][0]["status"] == "True"
}

#[tokio::test]
async fn a_budget_fits_its_pods_after_every_step() {
    let mut tried = (0, 0);
    for seed in 0..5 {
        let store = Store::in_memory(Seconds::default().clock(), [7; 16]);
        let mut world = World {
            client: client(Arc::new(store)),
            dice: Dice(seed),
            refused: 0,
            evicted: 0,
        };
        for name in ["a", "b"] {
            let spec = json!({ "minAvailable": 2, "selector": { "matchLabels": { "app": name } } });
            let body = json!({ "metadata": { "name": name }, "spec": spec });
            assert_eq!(world.send("POST", BUDGETS, body).await.0, 201);
        }
        for _ in 0..STEPS {
            world.step().await;
            world.check().await;
        }
        tried = (tried.0 + world.evicted, tried.1 + world.refused);
    }
    assert!(
        tried.0 > 10 && tried.1 > 10,
        "both happened often enough: {tried:?}"
    );
}
