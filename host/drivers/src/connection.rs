//! A connection: one cloud, reached through one driver.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use polity_clouds::BoxFuture;
use polity_core::contract::Failure;
use polity_http::login::Values;
use polity_http::{Address, Rate, Transport};
use serde_json::Value;

use crate::exchanged::Keeps;

/// The connection's own credentials.
pub trait Credentials: Send + Sync {
    /// The digest of the Secret, and its values as they are now.
    fn values(&self) -> BoxFuture<'_, Result<(String, Values), Failure>>;
}

/// The transport to the servers of a cloud. It is replaced when the certificates of the connection change.
pub struct CurrentTransport(Mutex<Result<Transport, Failure>>);

impl CurrentTransport {
    /// With this transport, or with the reason why there is none yet.
    pub fn new(transport: Result<Transport, Failure>) -> Self {
        CurrentTransport(Mutex::new(transport))
    }

    /// The transport for requests that begin now.
    pub fn get(&self) -> Result<Transport, Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the transport for new requests. Requests under way keep theirs.
    pub fn replace(&self, transport: Result<Transport, Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = transport;
    }
}

/// How fast one account may send requests to a server, in one region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Requests that read.
    pub reads: Rate,
    /// Requests that change something. Clouds allow fewer of them.
    pub changes: Rate,
}

impl Default for Rates {
    /// Not more than each of the three clouds allows by default: EC2 accepts 20 reads and 5 changes a second of most kinds
    /// ("Request throttling for the Amazon EC2 API").
    fn default() -> Self {
        let rate = |per_second, burst| Rate { per_second, burst };
        Rates {
            reads: rate(20.0, 40.0),
            changes: rate(5.0, 20.0),
        }
    }
}

/// One cloud, reached through one driver.
pub struct Connection {
    /// Its name.
    pub name: String,
    /// The configuration, which matches the driver's schema.
    pub configuration: Value,
    /// The addresses of endpoints, by name. For an endpoint that is missing here, the login gives the address.
    pub endpoints: BTreeMap<String, Address>,
    /// The region; empty if the cloud has none.
    pub region: String,
    /// The transport to its servers.
    pub transport: Arc<CurrentTransport>,
    /// The connection's own credentials, used where no identity policy names others.
    pub credentials: Option<Box<dyn Credentials>>,
    /// How fast all hosts together may send requests to each server.
    pub rates: Rates,
    /// How many hosts send requests to its servers now: each has its part of the rates.
    pub hosts: Arc<AtomicU32>,
    /// The networks in which an address from a response must be, so that requests may go to it.
    pub networks: Vec<IpNet>,
    /// The addresses of the API server. No request to an address from a response may go there, even if a network contains
    /// the address.
    pub never: Vec<IpAddr>,
    /// Stores the exchanges of operations that fail, create, or resolve an entry.
    pub keeps: Option<Arc<dyn Keeps>>,
}

impl Connection {
    /// How fast this host may send requests to each server.
    pub(crate) fn rate(&self, is_read: bool) -> Rate {
        let rate = match is_read {
            true => self.rates.reads,
            false => self.rates.changes,
        };
        rate.shared_by(self.hosts.load(Ordering::Relaxed))
    }

    /// Whether requests may go to this address, which a response contained. Addresses of the host itself and of the
    /// network's own services are allowed only if the connection names them.
    pub(crate) fn reaches(&self, ip: IpAddr) -> bool {
        // An IPv4 address that is written as an IPv6 address leads to the same server.
        let ip = ip.to_canonical();
        if self.never.iter().any(|never| never.to_canonical() == ip) {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn connection(networks: &[&str], never: &[&str]) -> Connection {
        Connection {
            name: "c".to_owned(),
            configuration: json!({}),
            endpoints: BTreeMap::new(),
            region: String::new(),
            transport: Arc::new(CurrentTransport::new(Err(Failure::new(
                polity_core::contract::Code::Unavailable,
                "none",
            )))),
            credentials: None,
            rates: Rates::default(),
            hosts: Arc::default(),
            networks: networks
                .iter()
                .map(|network| network.parse().expect("a network"))
                .collect(),
            never: never.iter().map(|ip| ip.parse().expect("an address")).collect(),
            keeps: None,
        }
    }

    #[test]
    fn an_address_of_a_response_leads_only_where_the_connection_says() {
        let all = ["0.0.0.0/0", "::/0"];
        for (networks, ip, expected) in [
            (&["10.0.0.0/8"][..], "10.1.2.3", true),
            (&["10.0.0.0/8"], "11.1.2.3", false),
            (&[], "10.1.2.3", false),
            (&all, "8.8.8.8", true),
            (&all, "127.0.0.1", false),
            (&all, "::1", false),
            (&all, "0.0.0.0", false),
            (&all, "169.254.169.254", false),
            (&all, "::ffff:169.254.169.254", false),
            (&all, "::ffff:127.0.0.1", false),
            (&all, "fe80::1", false),
            (&["127.0.0.0/8"], "127.0.0.1", true),
            (&["10.0.0.0/8"], "::ffff:10.1.2.3", true),
        ] {
            let connection = connection(networks, &[]);
            assert_eq!(
                connection.reaches(ip.parse().expect("an address")),
                expected,
                "{ip}"
            );
        }
    }

    #[test]
    fn hosts_that_ask_the_same_servers_share_the_rates() {
        let connection = connection(&[], &[]);
        assert_eq!(
            connection.rate(true),
            Rates::default().reads,
            "no other host is known"
        );
        connection.hosts.store(4, Ordering::Relaxed);
        let (reads, changes) = (connection.rate(true), connection.rate(false));
        assert_eq!((reads.per_second, reads.burst), (5.0, 10.0));
        assert_eq!((changes.per_second, changes.burst), (1.25, 5.0));
    }

    #[test]
    fn no_response_leads_to_the_api_server() {
        let connection = connection(&["10.0.0.0/8"], &["10.0.0.1"]);
        for (ip, expected) in [
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.2", true),
        ] {
            assert_eq!(
                connection.reaches(ip.parse().expect("an address")),
                expected,
                "{ip}"
            );
        }
    }
}
