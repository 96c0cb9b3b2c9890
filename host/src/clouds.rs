//! The open clouds, by the name that a binding gives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use polity_clouds::{Cloud, Opening, SecretResolver, Storage, node};
use polity_core::binding::CloudRef;
use serde_json::Value;

use crate::adapters::adapter;
use crate::clock::Clock;
use crate::connections::{self, Connections};
use crate::data::Data;

/// The open clouds.
///
/// Bindings that name the same cloud share it, and must give it the same configuration.
#[derive(Clone)]
pub struct Clouds {
    clock: Arc<Clock>,
    secrets: Arc<dyn SecretResolver>,
    data: Option<Arc<Data>>,
    seed: u64,
    /// A configuration that replaces those of the bindings.
    configuration: Option<Value>,
    /// Whether this host may govern the machine on which it runs.
    own_node: bool,
    on_open: Option<Arc<OnOpen>>,
    open: Arc<Mutex<BTreeMap<String, Open>>>,
    /// The clouds that are reached through drivers.
    connections: Option<Arc<Connections>>,
    through: Option<Arc<Through>>,
}

/// A function that is called with each cloud that is opened, and with its name.
type OnOpen = dyn Fn(&str, &dyn Cloud) + Send + Sync;

/// A function that wraps a cloud.
type Through = dyn Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud> + Send + Sync;

struct Open {
    configuration: Option<Value>,
    cloud: Arc<dyn Cloud>,
}

impl Clouds {
    /// No cloud is open yet. A cloud that has a state keeps it in the folder `data`, if there is one. Where
    /// `configuration` is given, it replaces those of the bindings.
    pub fn new(
        clock: Arc<Clock>,
        secrets: Arc<dyn SecretResolver>,
        data: Option<Arc<Data>>,
        seed: u64,
        configuration: Option<Value>,
    ) -> Self {
        Clouds {
            clock,
            secrets,
            data,
            seed,
            configuration,
            own_node: false,
            on_open: None,
            open: Arc::default(),
            connections: None,
            through: None,
        }
    }

    /// Also the connections of the cluster.
    pub fn with_connections(mut self, connections: Arc<Connections>) -> Self {
        self.connections = Some(connections);
        self
    }

    /// The connections of the cluster, if this host takes them.
    pub(crate) fn connections(&self) -> Option<&Arc<Connections>> {
        self.connections.as_ref()
    }

    /// Allows the cloud `node`: this host is the agent of the machine on which it runs.
    pub fn with_own_node(mut self) -> Self {
        self.own_node = true;
        self
    }

    /// Calls a function with each cloud that is opened, and with its name.
    pub fn on_open(mut self, call: impl Fn(&str, &dyn Cloud) + Send + Sync + 'static) -> Self {
        self.on_open = Some(Arc::new(call));
        self
    }

    /// The same clouds, each wrapped by this function. Tests use it to stand between a host and its clouds.
    #[cfg(feature = "simulation")]
    pub fn reached_through(
        &self,
        through: impl Fn(Arc<dyn Cloud>) -> Arc<dyn Cloud> + Send + Sync + 'static,
    ) -> Self {
        let mut clouds = self.clone();
        clouds.through = Some(Arc::new(through));
        clouds
    }

    /// The open cloud of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Cloud>> {
        let built_in = self.lock().get(name).map(|open| open.cloud.clone());
        let cloud = built_in.or_else(|| self.connections.as_ref()?.get(name))?;
        Some(match &self.through {
            Some(through) => through(cloud),
            None => cloud,
        })
    }

    /// Opens the cloud that a binding names, if it is not open yet.
    pub fn open(&self, cloud: &CloudRef) -> Result<Arc<dyn Cloud>> {
        if cloud.name == node::ADAPTER.name && !self.own_node {
            bail!(
                "the cloud {} is the machine on which the process runs: use it with `polity node-agent`",
                cloud.name
            );
        }
        if let Some(connections) = self.connections.as_ref().filter(|all| all.has(&cloud.name)) {
            connections::check_reference(&cloud.name, cloud.configuration.as_ref())?;
            return connections.open(&cloud.name);
        }
        let configuration = self.configuration.clone().or_else(|| cloud.configuration.clone());
        // The name is checked before a file is read or a cloud is shared under it.
        let adapter = adapter(&cloud.name).map_err(|e| match self.connections {
            Some(_) => anyhow!("{e}, and there is no CloudConnection of this name"),
            None => e,
        })?;
        (adapter.check)(configuration.as_ref())?;
        let mut open = self.lock();
        if let Some(known) = open.get(&cloud.name) {
            if known.configuration != configuration {
                bail!(
                    "{} is open with another configuration: bindings that share a cloud agree on it, and a change of it \
                     takes a restart of the host",
                    cloud.name
                );
            }
            return Ok(known.cloud.clone());
        }
        let storage = self.data.clone().map(|data| {
            let storage: Arc<dyn Storage> = Arc::new(Kept {
                data,
                cloud: cloud.name.clone(),
            });
            storage
        });
        let clock: Arc<dyn polity_clouds::Clock> = self.clock.clone();
        let opening = Opening {
            configuration: configuration.clone(),
            seed: self.seed,
            clock,
            secrets: self.secrets.clone(),
            storage,
        };
        let opened = (adapter.open)(opening)?;
        // The node agent keeps a file of its own, which begins anew without harm.
        let database = database_of(&cloud.name);
        if let Some(data) = self.data.as_ref().filter(|data| data.has(&database)) {
            data.keeps_cloud(&database)
                .context("cannot remember in the data folder that it keeps a cloud")?;
        }
        if let Some(on_open) = &self.on_open {
            on_open(&cloud.name, &*opened);
        }
        open.insert(
            cloud.name.clone(),
            Open {
                configuration,
                cloud: opened.clone(),
            },
        );
        Ok(opened)
    }

    /// Every open cloud.
    pub fn all(&self) -> Vec<Arc<dyn Cloud>> {
        self.lock().values().map(|open| open.cloud.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of the data folder that belongs to one cloud.
struct Kept {
    data: Arc<Data>,
    cloud: String,
}

/// The file in which a cloud keeps its database.
fn database_of(cloud: &str) -> String {
    format!("cloud-{cloud}.redb")
}

impl Storage for Kept {
    fn read(&self) -> io::Result<Option<String>> {
        self.data.read(&format!("cloud-{}.json", self.cloud))
    }

    fn replace(&self, document: &str) -> io::Result<()> {
        self.data.replace(&format!("cloud-{}.json", self.cloud), document)
    }

    fn database(&self) -> io::Result<File> {
        self.data.open_database(&database_of(&self.cloud))
    }
}
