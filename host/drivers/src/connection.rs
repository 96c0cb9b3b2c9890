//! A connection: one cloud, reached through one driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_clouds::BoxFuture;
use polity_core::contract::Failure;
use polity_core::contract::driver::Login;
use polity_http::login::Values;
use polity_http::{Address, Rate, Reach, Transport};
use polity_sandbox::driver::Effect;
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
    /// Requests that create what the operation creates. Without it, EC2 gets 2 a second and 5 at once, as it allows by default of
    /// `RunInstances` ("Request throttling for the Amazon EC2 API"), and other clouds as many as changes.
    pub creates: Option<Rate>,
}

/// How many `RunInstances` EC2 allows by default.
const RUN_INSTANCES: Rate = Rate {
    per_second: 2.0,
    burst: 5.0,
};

impl Default for Rates {
    /// Not more than each of the three clouds allows by default: EC2 accepts 20 reads and 5 changes a second of most kinds
    /// ("Request throttling for the Amazon EC2 API").
    fn default() -> Self {
        let rate = |per_second, burst| Rate { per_second, burst };
        Rates {
            reads: rate(20.0, 40.0),
            changes: rate(5.0, 20.0),
            creates: None,
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
    /// How long one operation may take: from [`LONGEST`](polity_clouds::catalogue::LONGEST) to
    /// [`OPERATION_AT_MOST`](polity_core::controller::lease::OPERATION_AT_MOST).
    pub longest: Duration,
    /// Where its requests may go.
    pub reach: Arc<Reach>,
    /// Stores the exchanges of operations that fail, create, or resolve an entry.
    pub keeps: Option<Arc<dyn Keeps>>,
}

impl Connection {
    /// How fast this host may send such requests to each server of a cloud with this login.
    pub(crate) fn rate(&self, effect: Effect, login: Login) -> Rate {
        let rate = match effect {
            Effect::Read => self.rates.reads,
            Effect::Change => self.rates.changes,
            Effect::Create => self.rates.creates.unwrap_or(match login {
                Login::AwsSigv4 => RUN_INSTANCES,
                _ => self.rates.changes,
            }),
        };
        rate.shared_by(self.hosts.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn connection() -> Connection {
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
            longest: polity_clouds::catalogue::LONGEST,
            reach: Arc::default(),
            keeps: None,
        }
    }

    #[test]
    fn hosts_that_ask_the_same_servers_share_the_rates() {
        let connection = connection();
        let rate = |effect| connection.rate(effect, Login::AwsSigv4);
        assert_eq!(
            rate(Effect::Read),
            Rates::default().reads,
            "no other host is known"
        );
        connection.hosts.store(4, Ordering::Relaxed);
        let (reads, changes, creates) = (rate(Effect::Read), rate(Effect::Change), rate(Effect::Create));
        assert_eq!((reads.per_second, reads.burst), (5.0, 10.0));
        assert_eq!((changes.per_second, changes.burst), (1.25, 5.0));
        assert_eq!((creates.per_second, creates.burst), (0.5, 1.25));
        assert_eq!(connection.rate(Effect::Create, Login::Keystone), changes);
    }
}
