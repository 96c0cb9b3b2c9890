//! CloudConnections: opens the cloud that a `CloudConnection` describes, through its driver, and writes the status of the
//! connection.

mod hold;
mod in_use;
mod spec;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use futures::StreamExt as _;
use polity_clouds::{BoxFuture, Cloud, Gateway, PlanSecret, SecretResolver, Sessions};
use polity_cluster::Cluster;
use polity_core::binding::API_VERSION;
use polity_core::call::{Scope, Session, WatchEvent};
use polity_core::contract::{Code, Failure, Kind};
use polity_core::object::Object;
use polity_drivers::{Calls, Connection, Credentials, CurrentTransport, DriverCloud, Keeps};
use polity_http::login::Values;
use polity_http::{Pace, Reach, Tls, Transport};
use polity_sandbox::driver::Driver;
use serde_json::Value;

use crate::clock::Clock;
use crate::policies::{Policies, Stamp};
use crate::selection::Selection;
use hold::Hold;
use in_use::Governed;
pub(crate) use in_use::StampInUse;
use spec::{ConnectionSpec, Key};
use status::Used;

/// The kind of connections.
pub(crate) const KIND: &str = "CloudConnection";
/// How often the host reads certificates again, and tries whether it reaches each cloud.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a status is written in which only the times and counts have changed.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// The connections of the cluster.
pub struct Connections {
    cluster: Arc<Cluster>,
    policies: Arc<Policies>,
    clock: Arc<Clock>,
    secrets: Arc<dyn SecretResolver>,
    seed: u64,
    /// How often a connection was opened. The handles of each opening are valid only there.
    openings: AtomicU64,
    /// The addresses of the API server: no request to an address from a cloud's response may go there.
    never: Vec<IpAddr>,
    /// The addresses of the node on which the host runs: only a connection that names them leads there.
    node: Vec<IpAddr>,
    pace: Arc<Pace>,
    /// Stores what drivers exchange with clouds.
    keeps: Option<Arc<dyn Keeps>>,
    /// The name of this replica in statuses.
    replica: String,
    governed: Governed,
    hold: Hold,
    known: Mutex<BTreeMap<String, Known>>,
}

/// A connection in the cluster.
struct Known {
    spec: Value,
    /// Held by who opens the connection, so that all bindings that name it get the same cloud.
    opening: Arc<Mutex<()>>,
    /// The driver that was loaded last. Kept also if the connection cannot be opened, so that the next binding which
    /// names the connection does not compile it again.
    driver: Option<Arc<Driver>>,
    /// The object, once the cluster has shown it.
    object: Option<Object>,
    open: Option<Open>,
    /// Why it could not be opened last time.
    problem: Option<String>,
    /// The stamps of entries in `status.pending`. The next driver must find them.
    in_use: BTreeSet<u32>,
    /// When this host last wrote the status.
    written: Option<Instant>,
}

impl Known {
    /// Checks that the next driver finds everything that the current driver created.
    fn finds_what_is_there(&self, next: &Open) -> Result<(), StampInUse> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let (finds, next) = (&open.cloud.catalogue().finds, &next.cloud.catalogue().finds);
        StampInUse::check(finds, next, &self.in_use)
    }
}

/// A connection that a binding uses.
struct Open {
    made_of: (Value, Option<Stamp>),
    cloud: Arc<dyn Cloud>,
    transport: Arc<CurrentTransport>,
    reach: Arc<Reach>,
    /// The certificates that the transport uses.
    tls: Option<Tls>,
    /// How many hosts send requests to its servers now.
    hosts: Arc<AtomicU32>,
    parsed: ConnectionSpec,
}

impl Connections {
    /// Without any connection yet. No request to an address from a cloud's response may go to an address in `never`.
    pub fn new(
        cluster: Arc<Cluster>,
        policies: Arc<Policies>,
        clock: Arc<Clock>,
        secrets: Arc<dyn SecretResolver>,
        seed: u64,
        never: Vec<IpAddr>,
    ) -> Self {
        Connections {
            hold: Hold::of(cluster.lease_name()),
            governed: Governed::default(),
            replica: String::new(),
            never,
            node: Vec::new(),
            cluster,
            policies,
            clock,
            secrets,
            seed,
            openings: AtomicU64::new(0),
            pace: Arc::default(),
            keeps: None,
            known: Mutex::default(),
        }
    }

    /// Sets the addresses of the node on which the host runs. An address that a cloud, a login or DNS gives leads there only if the
    /// connection names it.
    pub fn on_node(mut self, node: Vec<IpAddr>) -> Self {
        self.node = node;
        self
    }

    /// Stores in `keeps` what drivers exchange with clouds.
    pub fn kept_by(mut self, keeps: Arc<dyn Keeps>) -> Self {
        self.keeps = Some(keeps);
        self
    }

    /// Sets the name of this replica in statuses, and the bindings and namespaces that its host selects.
    pub fn used_by(mut self, replica: &str, selection: Selection) -> Self {
        (self.replica, self.governed) = (replica.to_owned(), Governed::of(selection));
        self
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a connection that is about to be applied.
    pub(crate) fn define(&self, name: &str, spec: &Value) {
        let mut known = self.known();
        let known = known.entry(name.to_owned()).or_insert_with(|| Known {
            spec: Value::Null,
            opening: Arc::default(),
            driver: None,
            object: None,
            open: None,
            problem: None,
            in_use: BTreeSet::new(),
            written: None,
        });
        known.spec = spec.clone();
    }

    /// Ends the sessions at all servers.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.known());
        let clouds = all.into_values().filter_map(|known| Some(known.open?.cloud));
        futures::future::join_all(clouds.map(close)).await;
    }

    /// Follows the connections of the cluster until the host ends.
    pub fn follow(self: &Arc<Self>) {
        let (own, looking) = (self.clone(), self.clone());
        tokio::spawn(async move { own.watch().await });
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(LOOK_EVERY);
            loop {
                tick.tick().await;
                looking.look().await;
            }
        });
    }

    async fn watch(&self) {
        let kind = Kind {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
        };
        let scope = Scope {
            kind,
            namespace: None,
            name: None,
            node: None,
            fields: Vec::new(),
        };
        let mut events = std::pin::pin!(self.cluster.watch(scope));
        while let Some(event) = events.next().await {
            match event {
                WatchEvent::Applied(object) => self.seen(object),
                WatchEvent::Deleted(object) => {
                    let gone = self.known().remove(object.name());
                    if let Some(open) = gone.and_then(|gone| gone.open) {
                        close(open.cloud).await;
                    }
                }
                WatchEvent::Listed { objects, .. } => {
                    let is_there = |name: &String| objects.iter().any(|object| object.name() == *name);
                    self.known()
                        .retain(|name, known| known.object.is_none() || is_there(name));
                    objects.into_iter().for_each(|object| self.seen(object));
                }
                // Without connections the kind need not be installed.
                WatchEvent::Failed(why) => tracing::debug!(why, "the watch of connections failed"),
            }
        }
    }

    fn seen(&self, object: Object) {
        let spec = object.at("spec").unwrap_or_default();
        self.define(object.name(), &spec);
        if let Some(known) = self.known().get_mut(object.name()) {
            known.object = Some(object);
        }
    }

    /// The spec of a connection and the stamp of its driver. A change of either means that the connection must be opened
    /// again.
    pub(crate) fn stamp(&self, name: &str) -> Option<(Value, Option<Stamp>)> {
        let spec = self.known().get(name)?.spec.clone();
        let stamp = ConnectionSpec::read(&spec)
            .ok()
            .and_then(|spec| self.policies.stamp(&spec.driver));
        Some((spec, stamp))
    }

    /// Whether the cluster has a connection of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.known().contains_key(name)
    }

    /// Runs before a binding that names a connection is loaded. Adds the finalizer to the connection. If the connection
    /// must be opened again, also reads which stamps the entries in `status.pending` have.
    ///
    /// # Errors
    /// The connection is being deleted, or cannot be written.
    pub(crate) async fn prepare(&self, name: &str) -> Result<(), Failure> {
        if !self.has(name) {
            return Ok(());
        }
        self.hold.take(&self.cluster, name).await?;
        let stamp = self.stamp(name);
        let is_swapped = |known: &Known| {
            let open = known.open.as_ref();
            open.is_some_and(|open| Some(&open.made_of) != stamp.as_ref())
        };
        if !self.known().get(name).is_some_and(is_swapped) {
            return Ok(());
        }
        match in_use::stamps(&self.cluster, name, &self.governed).await {
            Ok(in_use) => {
                if let Some(known) = self.known().get_mut(name) {
                    known.in_use = in_use;
                }
            }
            // This check is not the only protection: a driver answers `DriverTooNew` for an entry that it cannot find.
            Err(failure) => {
                tracing::warn!(connection = name, %failure, "cannot read whether entries in status.pending need its present driver");
            }
        }
        Ok(())
    }

    /// Opens a connection, unless it is already open with its present spec and driver. If it is being opened, this waits
    /// for the result.
    ///
    /// # Errors
    /// There is no connection of this name, its spec is wrong, or its driver cannot be loaded. The last is a `Later` if
    /// another try may succeed.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<dyn Cloud>> {
        let at = || format!("{KIND} {name}");
        let none = || anyhow!("there is no {KIND} {name:?}");
        let opening = self.known().get(name).ok_or_else(none)?.opening.clone();
        let _alone = opening.lock().unwrap_or_else(PoisonError::into_inner);
        let made_of = self.stamp(name).ok_or_else(none)?;
        if let Some(known) = self.known().get_mut(name)
            && let Some(open) = &known.open
            && open.made_of == made_of
        {
            known.problem = None;
            return Ok(open.cloud.clone());
        }
        let opened = self.opened(name, made_of);
        let mut known = self.known();
        let known = known
            .get_mut(name)
            .ok_or_else(|| anyhow!("{KIND} {name} is gone"))?;
        let opened = opened.and_then(|open| {
            known.finds_what_is_there(&open)?;
            Ok(open)
        });
        match opened.with_context(at) {
            Ok(open) => {
                let cloud = open.cloud.clone();
                (known.open, known.problem) = (Some(open), None);
                Ok(cloud)
            }
            Err(e) => {
                known.problem = Some(format!("{e:#}"));
                Err(e)
            }
        }
    }

    /// The open cloud of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Cloud>> {
        Some(self.known().get(name)?.open.as_ref()?.cloud.clone())
    }

    fn opened(&self, name: &str, made_of: (Value, Option<Stamp>)) -> Result<Open> {
        let parsed = ConnectionSpec::read(&made_of.0)?;
        let driver = self.policies.driver(&parsed.driver).context("spec.driver")?;
        if let Some(known) = self.known().get_mut(name) {
            known.driver = Some(driver.clone());
        }
        let configuration = parsed.driver.configuration.clone();
        let configuration = configuration.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        DriverCloud::check(&driver, &configuration)?;
        let endpoints = parsed.addresses()?;
        let reach = Reach::new(endpoints.values(), parsed.networks()?, self.never.clone());
        let reach = Arc::new(reach.on_node(self.node.clone()));
        let transport = if parsed.has_certificates() {
            Err(Failure::new(
                Code::Unavailable,
                "the certificates have not been read yet: the host reads them within seconds",
            ))
        } else {
            Ok(Transport::new(
                &Tls::default(),
                parsed.proxy.as_deref(),
                Some(reach.clone()),
            )?)
        };
        let transport = Arc::new(CurrentTransport::new(transport));
        let credentials = parsed.credentials.as_ref().map(|secret| {
            let credentials: Box<dyn Credentials> = Box::new(Named {
                secrets: self.secrets.clone(),
                secret: PlanSecret {
                    namespace: secret.namespace.clone(),
                    name: secret.name.clone(),
                },
            });
            credentials
        });
        let hosts = Arc::default();
        let connection = Connection {
            hosts: Arc::clone(&hosts),
            name: name.to_owned(),
            configuration,
            endpoints,
            region: parsed.region.clone().unwrap_or_default(),
            transport: transport.clone(),
            credentials,
            rates: parsed.rates(),
            longest: parsed.longest()?,
            reach: reach.clone(),
            keeps: self.keeps.clone(),
        };
        let (pace, clock) = (self.pace.clone(), self.clock.clone());
        let cloud = DriverCloud::new(driver, connection, pace, clock.clone())?;
        let sessions = Sessions::of_opening(self.seed, self.openings.fetch_add(1, Ordering::Relaxed));
        let gateway = Gateway::new(cloud, self.secrets.clone(), clock, sessions)?;
        Ok(Open {
            made_of,
            cloud: Arc::new(gateway),
            transport,
            reach,
            tls: None,
            hosts,
            parsed,
        })
    }

    /// Reads certificates again. Adds the finalizer to the connections that bindings name, and removes it from the others
    /// that nothing needs. Then writes the status of each connection.
    async fn look(&self) {
        let names: Vec<String> = self.known().keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        for name in &names {
            self.refresh(name).await;
        }
        let bindings = match self.governed.bindings(&self.cluster).await {
            Ok(bindings) => bindings,
            Err(failure) => {
                tracing::debug!(%failure, "cannot read the bindings");
                return;
            }
        };
        for name in names {
            let named_by = hold::named_by(&name, &bindings);
            let used = match named_by {
                Some(_) => Some(self.used(&name).await),
                None => None,
            };
            let needs = self.hold(&name, named_by).await;
            self.say(&name, used, needs).await;
        }
    }

    /// Adds the finalizer to a connection that bindings name, and removes it from a connection that nothing needs. Returns
    /// why a connection is still needed, if it is being deleted.
    async fn hold(&self, name: &str, named_by: Option<String>) -> Option<String> {
        let object = self.known().get(name)?.object.clone()?;
        let (is_held, is_deleting) = (self.hold.is_on(&object), object.is_deleting());
        let needs = match named_by {
            Some(needs) if is_held || is_deleting => Ok(Some(needs)),
            Some(needs) => self.hold.take(&self.cluster, name).await.map(|()| Some(needs)),
            None if is_held => self.hold.release(&self.cluster, name, &self.governed).await,
            None => Ok(None),
        };
        let needs = needs.unwrap_or_else(|failure| {
            tracing::debug!(connection = name, %failure, "cannot read whether the connection is still needed");
            None
        });
        needs.filter(|_| is_deleting)
    }

    /// Writes the status of a connection, if it has changed or its times and counts are due.
    async fn say(&self, name: &str, used: Option<Used>, needs: Option<String>) {
        let write = self.known().get_mut(name).and_then(|known| {
            let object = known.object.as_ref()?;
            let (used, needs) = (used.as_ref(), needs.as_deref());
            let status = status::status(object, &self.replica, used, needs, self.clock.now().unix);
            if let Some(open) = &known.open {
                open.hosts.store(status.asking, Ordering::Relaxed);
            }
            let is_due = used.is_some() && known.written.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
            if !status.is_news && !is_due {
                return None;
            }
            known.written = Some(Instant::now());
            Some(status::write(object, status.patch))
        });
        if let Some(write) = write
            && let Err(failure) = self.cluster.write(&write).await
        {
            tracing::debug!(connection = name, %failure, "cannot write the status of the connection");
            if let Some(known) = self.known().get_mut(name) {
                known.written = None;
            }
        }
    }

    /// How this replica uses a connection.
    async fn used(&self, name: &str) -> Used {
        let problem = self.known().get(name).and_then(|known| known.problem.clone());
        let Some(cloud) = self.get(name) else {
            return Used {
                problem,
                reached: None,
                calls: Calls::default(),
                throttled: None,
            };
        };
        let reached = Some(cloud.site(&nobody(name)).await);
        let (calls, throttled) = driven(&*cloud).map(DriverCloud::traffic).unwrap_or_default();
        Used {
            problem,
            reached,
            calls,
            throttled,
        }
    }

    /// Replaces the transport of a connection if its certificates have changed.
    async fn refresh(&self, name: &str) {
        let needed = self.known().get(name).and_then(|known| {
            let parsed = &known.open.as_ref()?.parsed;
            parsed.has_certificates().then(|| parsed.clone())
        });
        let Some(parsed) = needed else {
            return;
        };
        let read = parsed.tls(&self.cluster).await;
        if let Some(open) = self.known().get_mut(name).and_then(|known| known.open.as_mut()) {
            match read {
                Ok(tls) if open.tls.as_ref() == Some(&tls) => {}
                Ok(tls) => {
                    let made = Transport::new(&tls, parsed.proxy.as_deref(), Some(open.reach.clone()));
                    let made = made.map_err(|e| Failure::new(Code::FailedPrecondition, e.to_string()));
                    open.transport.replace(made);
                    open.tls = Some(tls);
                }
                // While certificates cannot be read, the last ones that were read stay in use.
                Err(failure) if open.tls.is_none() => open.transport.replace(Err(failure)),
                Err(_) => {}
            }
        }
    }
}

fn driven(cloud: &dyn Cloud) -> Option<&DriverCloud> {
    cloud.adapter()?.downcast_ref()
}

/// Ends the sessions of a cloud. Operations under way in them fail, and are tried again in new sessions.
async fn close(cloud: Arc<dyn Cloud>) {
    if let Some(cloud) = driven(&*cloud) {
        cloud.close().await;
    }
}

/// The session of the connection's own credentials, which belongs to no tenant.
fn nobody(cloud: &str) -> Session {
    Session {
        cloud: cloud.to_owned(),
        handle: None,
        owner: String::new(),
        tenant: String::new(),
        tenant_queue: Arc::default(),
        namespace: None,
    }
}

/// The Secret with the connection's own credentials.
struct Named {
    secrets: Arc<dyn SecretResolver>,
    secret: PlanSecret,
}

impl Credentials for Named {
    fn values(&self) -> BoxFuture<'_, Result<(String, Values), Failure>> {
        Box::pin(async {
            let content = self.secrets.credentials(&self.secret).await?;
            let mut values = Values::new();
            for (key, value) in content.values {
                let bad = |_| {
                    let Key { namespace, name } = Key::of(&self.secret);
                    Failure::new(
                        Code::InvalidArgument,
                        format!("Secret {namespace}/{name}: {key} is not UTF-8"),
                    )
                };
                let value = String::from_utf8(value).map_err(bad)?;
                values.insert(key, value);
            }
            Ok((content.digest, values))
        })
    }
}

/// Whether an object is a connection.
pub(crate) fn is_connection(object: &Value) -> bool {
    object["apiVersion"] == API_VERSION && object["kind"] == KIND
}

/// Checks that a binding which names a connection has no configuration of its own for the cloud.
pub(crate) fn check_reference(name: &str, configuration: Option<&Value>) -> Result<()> {
    match configuration {
        None => Ok(()),
        Some(_) => bail!("configuration: {KIND} {name} has it, in spec.driver.configuration; remove it here"),
    }
}
