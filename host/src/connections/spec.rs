//! The spec of a CloudConnection. `cloudconnection.yaml` describes the fields.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use ipnet::IpNet;
use polity_clouds::PlanSecret;
use polity_cluster::Cluster;
use polity_core::binding::PolicySource;
use polity_core::contract::{Code, Failure, Kind, ObjectQuery, ObjectRef, Question};
use polity_http::{Address, Rate};
use serde::Deserialize;
use serde_json::Value;

/// Requests a second to a server, where the connection says nothing.
const PER_SECOND: f64 = 20.0;
/// Requests at once, where the connection says nothing.
const BURST: f64 = 40.0;

/// The spec of a connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConnectionSpec {
    pub(super) driver: PolicySource,
    #[serde(default)]
    endpoints: BTreeMap<String, String>,
    pub(super) region: Option<String>,
    pub(super) credentials: Option<Key>,
    pub(super) ca_bundle: Option<CaBundle>,
    pub(super) proxy: Option<String>,
    rate: Option<RateSpec>,
    #[serde(default)]
    networks: Vec<String>,
}

/// The name of a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn of(secret: &PlanSecret) -> Self {
        Key {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
        }
    }
}

/// Where the certificates of the authorities stand: `ca.crt` of a ConfigMap or of a Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CaBundle {
    config_map: Option<Key>,
    secret: Option<Key>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RateSpec {
    per_second: u32,
    burst: u32,
}

/// The entry of a ConfigMap or Secret that holds certificates.
const CA: &str = "ca.crt";

impl ConnectionSpec {
    pub(super) fn read(spec: &Value) -> Result<Self> {
        serde_path_to_error::deserialize(spec).map_err(|e| {
            let path = e.path().to_string();
            anyhow!("spec.{path}: {}", e.into_inner())
        })
    }

    pub(super) fn addresses(&self) -> Result<BTreeMap<String, Address>> {
        let read = |(name, url): (&String, &String)| {
            let address = Address::read(url).with_context(|| format!("spec.endpoints.{name}"))?;
            Ok((name.clone(), address))
        };
        self.endpoints.iter().map(read).collect()
    }

    pub(super) fn networks(&self) -> Result<Vec<IpNet>> {
        let read = |text: &String| {
            let network = text.parse::<IpNet>();
            network.with_context(|| format!("spec.networks: {text:?} is no network like 10.0.0.0/8"))
        };
        self.networks.iter().map(read).collect()
    }

    pub(super) fn rate(&self) -> Rate {
        let given = self
            .rate
            .as_ref()
            .map(|rate| (f64::from(rate.per_second), f64::from(rate.burst)));
        let (per_second, burst) = given.unwrap_or((PER_SECOND, BURST));
        Rate {
            per_second: per_second.max(1.0),
            burst: burst.max(1.0),
        }
    }
}

impl CaBundle {
    /// The certificates in PEM, as they are now.
    pub(super) async fn read(&self, cluster: &Cluster) -> Result<Vec<u8>, Failure> {
        let missing = |what: &str, key: &Key| {
            let message = format!("{what} {}/{} has no entry {CA}", key.namespace, key.name);
            Failure::new(Code::NotFound, message)
        };
        match (&self.config_map, &self.secret) {
            (Some(key), None) => {
                let question = Question::Object(ObjectQuery {
                    object: config_map(key),
                    projection: Vec::new(),
                    latest: true,
                });
                let object = cluster.read(&question).await?;
                let text = object["data"][CA].as_str();
                Ok(text.ok_or_else(|| missing("ConfigMap", key))?.as_bytes().to_vec())
            }
            (None, Some(key)) => {
                let mut found = cluster.secret_values(Some(&key.namespace), &key.name, "").await?;
                found.values.remove(CA).ok_or_else(|| missing("Secret", key))
            }
            _ => Err(Failure::new(
                Code::InvalidArgument,
                "spec.caBundle: name either a configMap or a secret",
            )),
        }
    }
}

fn config_map(key: &Key) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        },
        namespace: Some(key.namespace.clone()),
        name: key.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(more: Value) -> Result<ConnectionSpec> {
        let mut spec = json!({"driver": {"file": "aws.wasm"}});
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        ConnectionSpec::read(&spec)
    }

    #[test]
    fn what_is_wrong_with_a_connection_is_said_with_its_path() {
        for (more, said) in [
            (json!({"endpoint": {}}), "spec.endpoint: unknown field"),
            (
                json!({"rate": {"perSecond": -1, "burst": 1}}),
                "spec.rate.perSecond: invalid value",
            ),
            (
                json!({"credentials": {"name": "x"}}),
                "spec.credentials: missing field `namespace`",
            ),
        ] {
            let refused = spec(more).expect_err("it is refused").to_string();
            assert!(refused.starts_with(said), "{refused}");
        }
        let bad = spec(json!({"endpoints": {"ec2": "ftp://x"}}))
            .expect("it is read")
            .addresses();
        assert!(format!("{:#}", bad.expect_err("no address")).starts_with("spec.endpoints.ec2: "));
        let bad = spec(json!({"networks": ["10.0.0.0"]}))
            .expect("it is read")
            .networks();
        assert!(bad.is_err());
    }
}
