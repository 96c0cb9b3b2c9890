//! A small OpenStack: the parts of nova, neutron, glance and an appliance that the driver uses, with the answers of the real
//! services.

mod appliance;
pub(crate) mod neutron;
pub(crate) mod nova;

use std::collections::BTreeMap;

pub(crate) use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Failure, HttpRequest, Piece};
use serde_json::{Value, json};

/// The network of the management.
pub(crate) const MANAGEMENT: &str = "net-mgmt";

/// The state of the cloud, and its faults.
pub(crate) struct Cloud {
    /// Rows of nova.
    pub(crate) servers: Vec<Value>,
    /// The servers whose cell is down.
    pub(crate) down: Vec<String>,
    /// Rows of neutron.
    pub(crate) ports: Vec<Value>,
    /// Rows of neutron.
    pub(crate) routers: Vec<Value>,
    /// The status of images, by id.
    pub(crate) images: BTreeMap<String, String>,
    /// The appliances, by address.
    pub(crate) appliances: BTreeMap<String, Reply>,
    /// The configurations that were sent to appliances.
    pub(crate) pushed: Vec<Value>,
    /// Replies in place of the real ones, by the beginning of a request (`GET servers/`).
    pub(crate) instead: Vec<(String, Reply)>,
    /// The beginnings of requests that are performed and whose reply is lost.
    pub(crate) lost: Vec<String>,
    /// The most rows of a page.
    pub(crate) page: usize,
    /// Whether lists return everything whatever the filters are.
    pub(crate) ignores_filters: bool,
    /// The present time, which becomes the creation time of new servers.
    pub(crate) created: String,
    /// The text of all replies so far. A request to an address is allowed only if a reply contained the address.
    told: String,
    /// The number of the last object that was created.
    last: u32,
}

impl Cloud {
    /// A cloud with an image, and nothing else.
    pub(crate) fn new() -> Self {
        Cloud {
            servers: Vec::new(),
            down: Vec::new(),
            ports: Vec::new(),
            routers: Vec::new(),
            images: BTreeMap::from([("image-1".to_owned(), "active".to_owned())]),
            appliances: BTreeMap::new(),
            pushed: Vec::new(),
            instead: Vec::new(),
            lost: Vec::new(),
            page: 1_000,
            ignores_filters: false,
            created: "2026-09-21T14:12:50Z".to_owned(),
            told: String::new(),
            last: 0,
        }
    }

    /// From now on, requests with this beginning get this reply.
    pub(crate) fn answer(&mut self, begin: &str, reply: Reply) {
        self.instead.insert(0, (begin.to_owned(), reply));
    }

    /// An operation begins: it has seen no reply yet.
    pub(crate) fn begin(&mut self) {
        self.told.clear();
    }

    /// The reply to a request.
    pub(crate) fn reply(&mut self, request: &HttpRequest) -> Reply {
        check(request);
        let line = format!("{} {}", request.method, below(request).join("/"));
        if let Some((_, reply)) = self
            .instead
            .iter()
            .find(|(begin, _)| line.starts_with(begin.as_str()))
        {
            return reply.clone();
        }
        let reply = match request.endpoint.as_str() {
            "compute" => self.nova(request),
            "network" => self.neutron(request),
            "image" => self.glance(request),
            "appliance" => self.appliance(request),
            other => panic!("no endpoint {other}"),
        };
        if self.lost.iter().any(|begin| line.starts_with(begin.as_str())) {
            Reply::lost(unreachable())
        } else {
            reply
        }
    }

    fn glance(&mut self, request: &HttpRequest) -> Reply {
        let id = &request.path[2];
        match self.images.get(id) {
            Some(status) => Reply::json(200, json!({"id": id, "status": status, "owner": "p", "size": 1})),
            None => Reply::new(
                404,
                format!(
                    "<html>\n <head>\n  <title>404 Not Found</title>\n </head>\n <body>\n  <h1>404 Not Found</h1>\n  \
                     No image found with ID {id}<br /><br />\n\n </body>\n</html>"
                ),
            ),
        }
    }

    /// A page of rows: the rows after the marker, and a link if there are more.
    fn paged(&mut self, name: &str, rows: Vec<Value>, request: &HttpRequest) -> Reply {
        let after = match query(request, "marker") {
            None => 0,
            Some(marker) => match rows.iter().position(|row| row["id"] == marker) {
                Some(position) => position + 1,
                None => return nova::fault(400, "badRequest", "marker not found"),
            },
        };
        let page: Vec<Value> = rows.iter().skip(after).take(self.page).cloned().collect();
        let mut body = json!({name: page});
        if after + self.page < rows.len() {
            let href = "http://nova.example/next";
            body[format!("{name}_links")] = json!([{"rel": "next", "href": href}]);
        }
        self.told.push_str(&body.to_string());
        Reply::json(200, body)
    }

    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// The path of a request; for nova the path below its version.
pub(crate) fn below(request: &HttpRequest) -> &[String] {
    let version = usize::from(request.endpoint == "compute");
    let (version, below) = request.path.split_at(version);
    assert!(version.iter().all(|version| version == "v2.1"));
    below
}

/// Checks that hold for every request.
fn check(request: &HttpRequest) {
    let is_plain = |segment: &String| {
        let outside = |character: char| "/?#%\\ ".contains(character) || character.is_control();
        !segment.is_empty() && segment != "." && segment != ".." && !segment.contains(outside)
    };
    assert!(request.path.iter().all(is_plain), "{:?}", request.path);
    assert!(!request.keep.is_empty() && !request.keep.iter().any(|path| path == "*"));
    let is_secret = |path: &String| path.contains("adminPass") || path.contains("user_data");
    assert!(!request.keep.iter().any(is_secret), "{:?}", request.keep);
    let header = |name: &str| {
        let mut headers = request.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    let to_cloud = request.endpoint != "appliance";
    assert_eq!(header("accept"), to_cloud.then_some("application/json"));
    let is_compute = request.endpoint == "compute";
    assert_eq!(
        header("openstack-api-version"),
        is_compute.then_some("compute 2.75")
    );
}

/// The failure of a request that has no response.
pub(crate) fn unreachable() -> Failure {
    polity_driver_sdk::failure(polity_driver_sdk::Code::Unavailable, "connection reset")
}

fn query<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pairs = request.query.iter();
    pairs
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
}

/// The JSON of a request.
pub(crate) fn body(request: &HttpRequest) -> Value {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Sealed(_) => panic!("nothing of a router is sealed"),
    };
    let text: String = request.body.iter().map(text).collect();
    serde_json::from_str(&text).expect("a body is JSON")
}
