//! Where requests may go. A connection names servers; other addresses come from a login or from a response, so a server
//! chooses them.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use ipnet::IpNet;
use tower::Service;

use crate::address::Address;

/// Where the requests of a connection may go.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The hosts, without ports, of the servers that the connection names.
    named: BTreeSet<String>,
    /// The networks that the connection names.
    networks: Vec<IpNet>,
    /// The addresses of the API server.
    never: Vec<IpAddr>,
}

impl Reach {
    /// The reach of a connection that names these servers and networks.
    pub fn new<'a>(
        named: impl IntoIterator<Item = &'a Address>,
        networks: Vec<IpNet>,
        never: Vec<IpAddr>,
    ) -> Self {
        Reach {
            named: named
                .into_iter()
                .map(|address| address.name().to_owned())
                .collect(),
            networks,
            never,
        }
    }

    /// Whether requests may go to this address, which a response contained: a network of the connection must contain it.
    pub fn allows_of_response(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        !self.is_never(ip) && self.lists(ip)
    }

    /// Whether requests may go to this address, which a login or DNS gave. An address of the host itself or of the network's
    /// own services, such as a metadata service, must be in a network of the connection.
    fn allows_of_login(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        !self.is_never(ip) && (!is_special(ip) || self.lists(ip))
    }

    /// Whether requests may go to this address, as far as can be said before its name is resolved.
    pub(crate) fn allows(&self, address: &Address) -> bool {
        let name = address.name();
        let ip: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        self.named.contains(name) || ip.is_none_or(|ip| self.allows_of_login(ip))
    }

    // An IPv4 address that is written as an IPv6 address leads to the same server.
    fn is_never(&self, ip: IpAddr) -> bool {
        self.never.iter().any(|never| never.to_canonical() == ip)
    }

    fn lists(&self, ip: IpAddr) -> bool {
        let is_special = is_special(ip);
        let fits = |network: &&IpNet| network.contains(&ip) && (!is_special || network.prefix_len() >= 8);
        self.networks.iter().find(fits).is_some_and(|network| {
            !is_special || network.network().is_loopback() || is_link_local(network.network())
        })
    }
}

/// Whether an address belongs to the host itself or to services of its network.
fn is_special(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local(ip)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Resolves names, and leaves out the addresses to which no request may go. What is checked is what is connected to, so that a
/// name cannot change in between.
#[derive(Clone)]
pub(crate) struct Resolver {
    names: GaiResolver,
    reach: Option<Arc<Reach>>,
}

impl Resolver {
    pub(crate) fn new(reach: Option<Arc<Reach>>) -> Self {
        let names = GaiResolver::new();
        Resolver { names, reach }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.names.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let text = name.to_string();
        let resolved = self.names.call(name);
        let reach = self.reach.clone().filter(|reach| !reach.named.contains(&text));
        Box::pin(async move {
            let all = resolved.await?;
            let may = |address: &SocketAddr| {
                let ip = address.ip();
                reach.as_ref().is_none_or(|reach| reach.allows_of_login(ip))
            };
            let allowed: Vec<SocketAddr> = all.filter(may).collect();
            if allowed.is_empty() {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, refused(&text)))
            } else {
                Ok(allowed.into_iter())
            }
        })
    }
}

/// Why no request is sent to this host.
pub(crate) fn refused(host: &str) -> String {
    format!(
        "{host} is an address of this machine, of its network's own services or of the API server, and the connection does not \
         name it: add it to spec.endpoints or spec.networks if it is right"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(networks: &[&str], never: &[&str]) -> Reach {
        let named = Address::read("https://localhost:5000/v3").expect("an address");
        let networks = networks.iter().map(|it| it.parse().expect("a network"));
        let never = never.iter().map(|it| it.parse().expect("an address"));
        Reach::new([&named], networks.collect(), never.collect())
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
            let ip = ip.parse().expect("an address");
            assert_eq!(reach(networks, &[]).allows_of_response(ip), expected, "{ip}");
        }
    }

    #[test]
    fn no_response_leads_to_the_api_server() {
        let reach = reach(&["10.0.0.0/8"], &["10.0.0.1"]);
        for (ip, expected) in [
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.2", true),
        ] {
            let ip = ip.parse().expect("an address");
            assert_eq!(reach.allows_of_response(ip), expected, "{ip}");
        }
    }

    #[test]
    fn an_address_that_a_login_found_is_not_the_hosts_own_unless_the_connection_names_it() {
        for (networks, url, expected) in [
            (&[][..], "https://localhost/v2.1", true),
            (&[], "https://nova.example", true),
            (&[], "https://10.1.2.3:8774", true),
            (&[], "http://10.0.0.1", false),
            (&[], "http://169.254.169.254/latest", false),
            (&[], "http://127.0.0.1:8774", false),
            (&[], "http://[::1]:8774", false),
            (&[], "http://[::ffff:127.0.0.1]", false),
            (&["127.0.0.0/8"], "http://127.0.0.1:8774", true),
        ] {
            let address = Address::read(url).expect("an address");
            assert_eq!(reach(networks, &["10.0.0.1"]).allows(&address), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_the_host_itself_is_refused_when_it_is_resolved() {
        let asked = async |reach: Reach| {
            let mut resolver = Resolver::new(Some(Arc::new(reach)));
            resolver.call("localhost".parse().expect("a name")).await
        };
        assert!(asked(reach(&[], &[])).await.is_ok(), "the connection names it");
        let refused = asked(Reach::default()).await.expect_err("nobody names it");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
