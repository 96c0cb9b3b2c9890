//! Where requests may go. A connection names servers; other addresses come from a login or from a response, so a server
//! chooses them.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tower::Service;

use crate::address::Address;

/// The networks whose addresses lead to the machine itself, or to what a network or a cloud serves to its machines. Most of these
/// services give whoever asks the credentials of the machine.
const SERVICES: [IpNet; 13] = [
    v4([127, 0, 0, 0], 8),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
    // Link-local: the metadata services of most clouds.
    v4([169, 254, 0, 0], 16),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    // AWS: metadata at ::254, credentials of pods at ::23, DNS at ::253, the time at ::123.
    // docs.aws.amazon.com/whitepapers/latest/ipv6-on-aws/supporting-amazon-vpc-services.html
    // docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    // Azure's wire server: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    v4([168, 63, 129, 16], 32),
    // Alibaba Cloud, as cloud-init asks it: cloudinit/sources/DataSourceAliYun.py
    v4([100, 100, 100, 200], 32),
    v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128),
    // Oracle Cloud Classic: "Retrieving Instance Metadata" in "Using Oracle Cloud Infrastructure Compute Classic"
    v4([192, 0, 0, 192], 32),
    // Oracle Cloud, as Oracle asks it: oci-python-sdk, instance_principals_security_token_signer.py
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    // Google Cloud: cloud.google.com/compute/docs/metadata/querying-metadata
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // Scaleway and Akamai, as cloud-init documents them: doc/rtd/reference/datasources/{scaleway,akamai}.rst
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

/// Where the requests of a connection may go.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The hosts, without ports, of the servers that the connection names.
    named: BTreeSet<String>,
    /// The networks that the connection names.
    networks: Vec<IpNet>,
    /// The addresses of the API server.
    never: Vec<IpAddr>,
    /// The addresses of the node on which the host runs.
    node: Vec<IpAddr>,
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
            node: Vec::new(),
        }
    }

    /// Sets the addresses of the node on which the host runs. Those of the machine itself need not be among them: in a pod these
    /// are the addresses of the pod.
    pub fn on_node(mut self, node: Vec<IpAddr>) -> Self {
        self.node = node.iter().map(IpAddr::to_canonical).collect();
        self
    }

    /// Whether requests may go to this address, which a response contained: a network of the connection must contain it.
    pub fn allows_of_response(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        !self.is_never(ip) && self.lists(ip, self.service(ip))
    }

    /// Whether requests may go to this address, which a login or DNS gave. An address of the host itself, of its node or of a
    /// network's own services, such as a metadata service, must be in a network of the connection.
    fn allows_of_login(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let service = self.service(ip);
        !self.is_never(ip) && (service.is_none() || self.lists(ip, service))
    }

    /// Whether requests may go to this address, as far as can be said before its name is resolved.
    pub(crate) fn allows(&self, address: &Address) -> bool {
        let name = address.name();
        let ip: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        self.named.contains(name) || ip.is_none_or(|ip| self.allows_of_login(ip))
    }

    // An IPv4 address that is written as an IPv6 address leads to the same server.
    fn is_never(&self, ip: IpAddr) -> bool {
        let is_of_api_server = self.never.iter().any(|never| never.to_canonical() == ip);
        is_of_api_server || ip.is_unspecified() || ip.is_multicast()
    }

    /// The largest network with this address that leads only to the host itself, to its node or to services of its network.
    fn service(&self, ip: IpAddr) -> Option<IpNet> {
        let service = SERVICES.into_iter().find(|network| network.contains(&ip));
        service.or_else(|| (self.node.contains(&ip) || is_of_this_machine(ip)).then(|| ip.into()))
    }

    /// Whether a network of the connection has this address. A network with other addresses too, such as 0.0.0.0/0, does not
    /// mean the services.
    fn lists(&self, ip: IpAddr, service: Option<IpNet>) -> bool {
        let means = |network: &IpNet| service.is_none_or(|service| service.contains(network));
        self.networks
            .iter()
            .any(|network| network.contains(&ip) && means(network))
    }
}

/// Whether an interface of this machine has the address: only then can a socket be bound to it. Where the kernel lets sockets be
/// bound to any address (`net.ipv4.ip_nonlocal_bind`), it says nothing about any.
fn is_of_this_machine(ip: IpAddr) -> bool {
    // Nobody has an address of the reserved network (RFC 1112) or of the one that is thrown away (RFC 6666).
    let nobodys: IpAddr = if ip.is_ipv4() {
        Ipv4Addr::new(240, 0, 0, 0).into()
    } else {
        Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0).into()
    };
    let can_be_bound = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    can_be_bound(ip) && !can_be_bound(nobodys)
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
        "{host} is an address of this machine, of its node, of its cloud's own services or of the API server, and the connection does \
         not name it: add it to spec.endpoints, or alone to spec.networks, if it is right"
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
    fn what_a_cloud_serves_to_its_machines_is_reached_only_by_a_network_of_nothing_else() {
        for (ip, wide, alone) in [
            ("169.254.169.254", "169.0.0.0/8", "169.254.169.254/32"),
            ("fd00:ec2::254", "fd00::/8", "fd00:ec2::254/128"),
            ("fd00:ec2::23", "fd00::/16", "fd00:ec2::/32"),
            ("168.63.129.16", "168.63.0.0/16", "168.63.129.16/32"),
            ("::ffff:168.63.129.16", "168.63.129.0/24", "168.63.129.16/32"),
            ("100.100.100.200", "100.64.0.0/10", "100.100.100.200/32"),
            ("fd00:100::100:200", "fd00:100::/32", "fd00:100::100:200/128"),
            ("192.0.0.192", "192.0.0.0/24", "192.0.0.192/32"),
            ("fd00:c1::a9fe:a9fe", "fd00:c1::/32", "fd00:c1::a9fe:a9fe/128"),
            ("fd20:ce::254", "fd20::/16", "fd20:ce::254/128"),
            ("fd00:42::42", "fc00::/7", "fd00:42::42/128"),
            ("fd00:a9fe:a9fe::1", "::/0", "fd00:a9fe:a9fe::1/128"),
        ] {
            let ip: IpAddr = ip.parse().expect("an address");
            let both = |networks: &[&str]| {
                let reach = reach(networks, &[]);
                (reach.allows_of_response(ip), reach.allows_of_login(ip))
            };
            assert_eq!(both(&[]), (false, false), "{ip}");
            assert_eq!(both(&[wide]), (false, false), "{ip} in {wide}");
            assert_eq!(both(&[wide, alone]), (true, true), "{ip} in {alone}");
        }
    }

    #[test]
    fn the_node_of_the_host_is_reached_only_by_a_network_of_it_alone() {
        let node: Vec<IpAddr> = vec![
            "10.0.3.7".parse().expect("an address"),
            "fd07::7".parse().expect("an address"),
        ];
        for (networks, ip, expected) in [
            (&["10.0.0.0/8"][..], "10.0.3.8", (true, true)),
            (&["10.0.0.0/8"], "10.0.3.7", (false, false)),
            (&["10.0.0.0/8"], "::ffff:10.0.3.7", (false, false)),
            (&["10.0.0.0/8", "10.0.3.7/32"], "10.0.3.7", (true, true)),
            (&["fd00::/8"], "fd07::7", (false, false)),
            (&["fd07::7/128"], "fd07::7", (true, true)),
            (&[], "10.0.3.8", (false, true)),
        ] {
            let reach = reach(networks, &[]).on_node(node.clone());
            let ip = ip.parse().expect("an address");
            let allowed = (reach.allows_of_response(ip), reach.allows_of_login(ip));
            assert_eq!(allowed, expected, "{ip} in {networks:?}");
        }
    }

    /// An address by which others reach this machine; none if it has no network.
    fn outward() -> Option<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        // An address for examples (RFC 5737). Nothing is sent.
        socket.connect("198.51.100.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    #[test]
    fn an_address_of_this_machine_is_reached_only_by_a_network_of_it_alone() {
        assert!(is_of_this_machine(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_of_this_machine(Ipv4Addr::new(198, 51, 100, 1).into()));
        assert!(!is_of_this_machine(
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
        ));
        let Some(own) = outward() else {
            return;
        };
        let alone = format!("{own}/32");
        for (network, expected) in [("0.0.0.0/0", false), (&alone, true)] {
            let reach = reach(&[network], &[]);
            assert_eq!(reach.allows_of_response(own), expected, "{own} in {network}");
            assert_eq!(reach.allows_of_login(own), expected, "{own} in {network}");
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
