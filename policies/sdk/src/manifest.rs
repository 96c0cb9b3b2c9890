//! The manifest of a policy.

use polity_contract as contract;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::{Crd, Kind, json};

pub use polity_contract::{Edge, Need, Role};

/// The manifest, built by name. See `manifest.schema.json` of `polity-contract`.
#[derive(Clone, Debug)]
pub struct Manifest(contract::Manifest);

impl Manifest {
    /// The manifest of a lifecycle policy, which decides which action comes next.
    pub fn lifecycle(name: &str, version: &str) -> Self {
        Manifest::new(Role::Lifecycle, name, version)
    }

    /// The manifest of an identity policy, which decides which principal may act for an object.
    pub fn identity(name: &str, version: &str) -> Self {
        Manifest::new(Role::Identity, name, version)
    }

    /// The manifest of a retry policy, which decides how long an object waits until the next try.
    pub fn retry(name: &str, version: &str) -> Self {
        Manifest::new(Role::Retry, name, version)
    }

    fn new(role: Role, name: &str, version: &str) -> Self {
        Manifest(contract::Manifest {
            name: name.to_owned(),
            version: version.to_owned(),
            role,
            governs: Vec::new(),
            needs: Vec::new(),
            writes: Vec::new(),
            config_schema: json!({}),
            finalizer: None,
            crd: None,
            edges: Vec::new(),
        })
    }

    /// Adds a kind that the policy can govern. Without any, it can govern every kind.
    pub fn governs<K: Kind>(mut self) -> Self {
        self.0.governs.push(kind::<K>());
        self
    }

    /// Sets the CustomResourceDefinition of its kind.
    pub fn crd(mut self, crd: Crd) -> Self {
        self.0.crd = Some(crd.json());
        self
    }

    /// Sets the CustomResourceDefinitions of several kinds, as one `List`.
    pub fn crds(mut self, crds: impl IntoIterator<Item = Crd>) -> Self {
        let items: Vec<Value> = crds.into_iter().map(|crd| crd.json()).collect();
        self.0.crd = Some(json!({ "apiVersion": "v1", "kind": "List", "items": items }));
        self
    }

    /// Sets the finalizer that the host adds to an object before the first act.
    pub fn finalizer(mut self, finalizer: &str) -> Self {
        self.0.finalizer = Some(finalizer.to_owned());
        self
    }

    /// Adds a kind of request that the policy needs.
    pub fn needs(mut self, need: Need) -> Self {
        self.0.needs.push(need);
        self
    }

    /// Adds the needs of a part of the policy, for example [`drain::needs`](crate::kube::drain::needs).
    pub fn needs_all(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.0.needs.extend(needs);
        self
    }

    /// Adds operations of the cloud that the policy needs.
    pub fn needs_cloud<'a>(mut self, operations: impl IntoIterator<Item = &'a str>) -> Self {
        self.0
            .needs
            .extend(operations.into_iter().map(|name| Need::Cloud(name.to_owned())));
        self
    }

    /// Adds dotted paths of the primary that the policy writes. Conditions are named by type:
    /// `status.conditions[Ready]`.
    pub fn writes<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.writes.extend(paths.into_iter().map(str::to_owned));
        self
    }

    /// Sets the type of its configuration.
    pub fn config<C: JsonSchema>(mut self) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<C>();
        self.0.config_schema = schema.to_value();
        self
    }

    /// Adds the edges of its workflow, which its notes name.
    pub fn edges(mut self, edges: impl IntoIterator<Item = Edge>) -> Self {
        self.0.edges.extend(edges);
        self
    }

    /// The manifest in the contract's type.
    pub fn into_contract(self) -> contract::Manifest {
        self.0
    }

    /// The manifest in the contract's type.
    pub fn as_contract(&self) -> &contract::Manifest {
        &self.0
    }

    /// The manifest as JSON, which `describe` answers.
    pub fn to_json(&self) -> String {
        json::text(&serde_json::to_value(&self.0).expect("a manifest has a JSON form"))
    }
}

fn kind<K: Kind>() -> contract::Kind {
    contract::Kind {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
    }
}

/// Needs of a kind, by its Rust type.
pub trait NeedOf {
    /// Look at objects of a kind.
    fn objects_of<K: Kind>() -> Need {
        Need::Objects(kind::<K>())
    }

    /// Create objects of a kind.
    fn create_of<K: Kind>() -> Need {
        Need::Create(kind::<K>())
    }

    /// Patch objects of a kind.
    fn patch_of<K: Kind>() -> Need {
        Need::Patch(kind::<K>())
    }

    /// Delete objects of a kind.
    fn delete_of<K: Kind>() -> Need {
        Need::Delete(kind::<K>())
    }
}

impl NeedOf for Need {}
