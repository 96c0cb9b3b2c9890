//! The spec of a CloudConnection. `cloudconnection.yaml` describes the fields.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use ipnet::IpNet;
use polity_clouds::PlanSecret;
use polity_clouds::catalogue::LONGEST;
use polity_cluster::Cluster;
use polity_core::binding::PolicySource;
use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_core::controller::lease::OPERATION_AT_MOST;
use polity_drivers::Rates;
use polity_http::{Address, Rate, Tls};
use serde::Deserialize;
use serde_json::Value;

/// The spec of a connection.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConnectionSpec {
    pub(super) driver: PolicySource,
    #[serde(default)]
    endpoints: BTreeMap<String, String>,
    pub(super) region: Option<String>,
    pub(super) credentials: Option<Key>,
    ca_bundle: Option<CaBundle>,
    client_certificate: Option<Key>,
    pub(super) proxy: Option<String>,
    rates: Option<RatesSpec>,
    /// In milliseconds.
    longest_operation: Option<u64>,
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

/// Where the certificates of the authorities are: in `ca.crt` of a ConfigMap or of a Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaBundle {
    config_map: Option<Key>,
    secret: Option<Key>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RatesSpec {
    reads: Option<Limit>,
    changes: Option<Limit>,
    creates: Option<Limit>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    per_second: u32,
    burst: u32,
}

impl From<Limit> for Rate {
    fn from(limit: Limit) -> Self {
        Rate {
            per_second: f64::from(limit.per_second.max(1)),
            burst: f64::from(limit.burst.max(1)),
        }
    }
}

/// The entry of a ConfigMap or Secret that holds certificates.
const CA: &str = "ca.crt";
/// The entries of a Secret of the type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

impl ConnectionSpec {
    pub(super) fn read(spec: &Value) -> Result<Self> {
        let read: Self = serde_path_to_error::deserialize(spec).map_err(|e| {
            let path = e.path().to_string();
            anyhow!("spec.{path}: {}", e.into_inner())
        })?;
        // The type is shared with the sources of policies, where this field is allowed.
        match spec["driver"].get("writes") {
            Some(_) => Err(anyhow!("spec.driver.writes: a driver writes to no object")),
            None => Ok(read),
        }
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
            network.with_context(|| {
                format!("spec.networks: {text:?} is not a network; write one like 10.0.0.0/8")
            })
        };
        self.networks.iter().map(read).collect()
    }

    /// Whether it names certificates, which can change while the connection is open.
    pub(super) fn has_certificates(&self) -> bool {
        self.ca_bundle.is_some() || self.client_certificate.is_some()
    }

    /// The certificates, as they are now.
    pub(super) async fn tls(&self, cluster: &Cluster) -> Result<Tls, Failure> {
        let mut tls = Tls::default();
        if let Some(bundle) = &self.ca_bundle {
            tls.authorities = Some(bundle.read(cluster).await?);
        }
        if let Some(secret) = &self.client_certificate {
            let mut found = cluster
                .secret_values(Some(&secret.namespace), &secret.name, "")
                .await?;
            let mut entry = |name| {
                found
                    .values
                    .remove(name)
                    .ok_or_else(|| missing("Secret", secret, name))
            };
            tls.client = Some((entry(CERTIFICATE)?, entry(KEY)?));
        }
        Ok(tls)
    }

    /// How long one operation may take.
    pub(super) fn longest(&self) -> Result<Duration> {
        let given = self.longest_operation.map_or(LONGEST, Duration::from_millis);
        if (LONGEST..=OPERATION_AT_MOST).contains(&given) {
            Ok(given)
        } else {
            Err(anyhow!(
                "spec.longestOperation: {} ms is not from {} to {} ms, the most that the lease of a host allows",
                given.as_millis(),
                LONGEST.as_millis(),
                OPERATION_AT_MOST.as_millis()
            ))
        }
    }

    pub(super) fn rates(&self) -> Rates {
        let Some(given) = &self.rates else {
            return Rates::default();
        };
        let standing = Rates::default();
        Rates {
            reads: given.reads.map_or(standing.reads, Rate::from),
            changes: given.changes.map_or(standing.changes, Rate::from),
            creates: given.creates.map(Rate::from),
        }
    }
}

impl CaBundle {
    /// The certificates in PEM, as they are now.
    async fn read(&self, cluster: &Cluster) -> Result<Vec<u8>, Failure> {
        match (&self.config_map, &self.secret) {
            (Some(key), None) => {
                let object = cluster.latest(config_map(key)).await?;
                let text = object["data"][CA].as_str();
                Ok(text
                    .ok_or_else(|| missing("ConfigMap", key, CA))?
                    .as_bytes()
                    .to_vec())
            }
            (None, Some(key)) => {
                let mut found = cluster.secret_values(Some(&key.namespace), &key.name, "").await?;
                found.values.remove(CA).ok_or_else(|| missing("Secret", key, CA))
            }
            _ => Err(Failure::new(
                Code::InvalidArgument,
                "spec.caBundle: name either a configMap or a secret",
            )),
        }
    }
}

fn missing(what: &str, key: &Key, entry: &str) -> Failure {
    let Key { namespace, name } = key;
    Failure::new(
        Code::NotFound,
        format!("{what} {namespace}/{name} has no entry {entry}"),
    )
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
    fn an_operation_may_take_as_long_as_the_lease_allows() {
        let longest = |more| spec(more).expect("it is read").longest();
        let millis = |more| longest(more).map(|longest| longest.as_millis()).ok();
        assert_eq!(millis(json!({})), Some(5_000));
        for (given, expected) in [
            (4_999, None),
            (5_000, Some(5_000)),
            (7_000, Some(7_000)),
            (7_001, None),
        ] {
            assert_eq!(millis(json!({"longestOperation": given})), expected);
        }
    }

    #[test]
    fn what_is_wrong_with_a_connection_is_said_with_its_path() {
        for (more, said) in [
            (json!({"endpoint": {}}), "spec.endpoint: unknown field"),
            (
                json!({"rates": {"reads": {"perSecond": -1, "burst": 1}}}),
                "spec.rates.reads.perSecond: invalid value",
            ),
            (
                json!({"driver": {"file": "aws.wasm", "writes": []}}),
                "spec.driver.writes: a driver writes to no object",
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

    /// A value with every field of a schema.
    fn sample(schema: &Value) -> Value {
        match schema["type"].as_str() {
            Some("object") => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                let fields = fields.map(|(name, schema)| (name.clone(), sample(schema)));
                Value::Object(fields.collect())
            }
            Some("array") => Value::Array(Vec::new()),
            Some("integer") => json!(1),
            _ => json!("x"),
        }
    }

    /// The fields of each object in a schema, by its path.
    fn objects(schema: &Value, at: &str, all: &mut Vec<(String, Vec<String>)>) {
        if let Some(fields) = schema["properties"].as_object() {
            all.push((at.to_owned(), fields.keys().cloned().collect()));
            fields
                .iter()
                .for_each(|(name, schema)| objects(schema, &format!("{at}/{name}"), all));
        }
    }

    #[test]
    fn the_schema_has_the_fields_that_the_host_reads_and_no_others() {
        let crd: Value = serde_saphyr::from_str(include_str!("../cloudconnection.yaml")).expect("YAML");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let whole = sample(schema);
        ConnectionSpec::read(&whole).expect("the host reads every field");
        let mut all = Vec::new();
        objects(schema, "", &mut all);
        assert!(all.len() >= 8, "{all:?}");
        for (at, mut fields) in all {
            let mut spec = whole.clone();
            let place = spec.pointer_mut(&at).and_then(Value::as_object_mut);
            place
                .expect("it is in the sample")
                .insert("?".to_owned(), json!(1));
            let refused = ConnectionSpec::read(&spec)
                .expect_err("it is refused")
                .to_string();
            let known = refused.split_once("expected").expect("it says which there are").1;
            let mut known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            known.retain(|field| *field != "writes");
            fields.sort();
            known.sort_unstable();
            assert_eq!(known, fields, "the fields of spec{at}");
        }
    }
}
