//! What a policy says of itself.

use polity_contract as contract;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::{Crd, Kind, json};

pub use polity_contract::{Edge, Need, Role};

/// The manifest, built by name; see `manifest.schema.json` of `polity-contract`.
#[derive(Clone, Debug)]
pub struct Manifest(contract::Manifest);

impl Manifest {
    /// Of a policy that answers: which action next?
    pub fn lifecycle(name: &str, version: &str) -> Self {
        Manifest::new(Role::Lifecycle, name, version)
    }

    /// Of a policy that answers: which principal may act for this object?
    pub fn identity(name: &str, version: &str) -> Self {
        Manifest::new(Role::Identity, name, version)
    }

    /// Of a policy that answers: how long until the next try?
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

    /// A kind whose objects it can govern. Without any, it governs every kind.
    pub fn governs<K: Kind>(mut self) -> Self {
        self.0.governs.push(kind::<K>());
        self
    }

    /// The CustomResourceDefinition of its kind.
    pub fn crd(mut self, crd: Crd) -> Self {
        self.0.crd = Some(crd.json());
        self
    }

    /// The CustomResourceDefinitions of its kinds, where it brings several: one `List`.
    pub fn crds(mut self, crds: impl IntoIterator<Item = Crd>) -> Self {
        let items: Vec<Value> = crds.into_iter().map(|crd| crd.json()).collect();
        self.0.crd = Some(json!({ "apiVersion": "v1", "kind": "List", "items": items }));
        self
    }

    /// The finalizer that the host keeps on an object before the first act.
    pub fn finalizer(mut self, finalizer: &str) -> Self {
        self.0.finalizer = Some(finalizer.to_owned());
        self
    }

    /// Something it wants to be allowed.
    pub fn needs(mut self, need: Need) -> Self {
        self.0.needs.push(need);
        self
    }

    /// What some part of it wants to be allowed: [`drain::needs`](crate::kube::drain::needs).
    pub fn needs_all(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.0.needs.extend(needs);
        self
    }

    /// Operations of the cloud that it wants to be allowed.
    pub fn needs_cloud<'a>(mut self, operations: impl IntoIterator<Item = &'a str>) -> Self {
        self.0
            .needs
            .extend(operations.into_iter().map(|name| Need::Cloud(name.to_owned())));
        self
    }

    /// Dotted paths of the primary that it writes; conditions by type: `status.conditions[Ready]`.
    pub fn writes<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.writes.extend(paths.into_iter().map(str::to_owned));
        self
    }

    /// The type of its configuration.
    pub fn config<C: JsonSchema>(mut self) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<C>();
        self.0.config_schema = schema.to_value();
        self
    }

    /// The edges of its workflow: the vocabulary of its notes.
    pub fn edges(mut self, edges: impl IntoIterator<Item = Edge>) -> Self {
        self.0.edges.extend(edges);
        self
    }

    /// As the contract has it.
    pub fn into_contract(self) -> contract::Manifest {
        self.0
    }

    /// As the contract has it.
    pub fn as_contract(&self) -> &contract::Manifest {
        &self.0
    }

    /// What `describe` answers.
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

/// Needs that name a kind, by its type.
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
