//! One cloud as one driver reaches it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use polity_clouds::BoxFuture;
use polity_core::contract::Failure;
use polity_http::login::Values;
use polity_http::{Address, Rate, Transport};
use serde_json::Value;

/// The default credentials of a connection.
pub trait Credentials: Send + Sync {
    /// The values of the Secret, as they are now, with its digest.
    fn values(&self) -> BoxFuture<'_, Result<(String, Values), Failure>>;
}

/// The connections to the servers of a cloud. They are made anew when the certificates change that they trust.
pub struct CurrentTransport(Mutex<Result<Transport, Failure>>);

impl CurrentTransport {
    /// The transport, or why there is none yet.
    pub fn new(transport: Result<Transport, Failure>) -> Self {
        CurrentTransport(Mutex::new(transport))
    }

    /// The transport for what begins now.
    pub fn get(&self) -> Result<Transport, Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on. What is under way goes on with what it has.
    pub fn replace(&self, transport: Result<Transport, Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = transport;
    }
}

/// One cloud as one driver reaches it.
pub struct Connection {
    /// Its name.
    pub name: String,
    /// The configuration, by the driver's schema.
    pub configuration: Value,
    /// The addresses of endpoints, by name. What is missing here is what the login says.
    pub endpoints: BTreeMap<String, Address>,
    /// The region; empty if the cloud has none.
    pub region: String,
    /// The connections to its servers.
    pub transport: Arc<CurrentTransport>,
    /// Who asks where no identity policy says so.
    pub credentials: Option<Box<dyn Credentials>>,
    /// How fast each server may be asked.
    pub rate: Rate,
    /// The networks to which an address that a response names may lead.
    pub networks: Vec<IpNet>,
}

impl Connection {
    /// Whether requests may go to this address of a response. Nothing leads to the host itself or to the network's
    /// own services unless the connection names them.
    pub(crate) fn reaches(&self, ip: IpAddr) -> bool {
        let listed = |special: bool| {
            let fits = |network: &&IpNet| network.contains(&ip) && (!special || network.prefix_len() >= 8);
            self.networks.iter().find(fits).is_some_and(|network| {
                !special || network.network().is_loopback() || is_link_local(network.network())
            })
        };
        listed(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local(ip))
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
