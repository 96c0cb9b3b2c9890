//! Neutron.

use polity_driver_sdk::HttpRequest;
use serde_json::{Value, json};

use super::{Cloud, Reply, body, query};

/// A refusal of neutron.
pub(crate) fn error(status: u16, kind: &str, message: &str) -> Reply {
    Reply::json(
        status,
        json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}),
    )
}

/// The tags of a port for a router of `tenant-1`.
pub(crate) fn tags(router: &str) -> [String; 2] {
    [
        "polity-tenant:tenant-1".to_owned(),
        format!("polity-router:{router}"),
    ]
}

/// The MAC address of this number.
pub(crate) fn mac(number: u32) -> String {
    format!("fa:16:3e:00:00:{number:02x}")
}

impl Cloud {
    /// A port with the MAC address of this number, which is not plugged in.
    pub(crate) fn port(&mut self, network: &str, number: u32, tags: &[String]) -> String {
        let id = format!("00000000-0000-4000-9000-{:012}", self.next());
        self.ports.push(json!({
            "id": id, "network_id": network, "mac_address": mac(number), "device_id": "", "device_owner": "",
            "tags": tags, "fixed_ips": [{"subnet_id": "s", "ip_address": format!("10.0.0.{number}")}],
            "binding:profile": {"secret": true},
        }));
        id
    }

    /// A port for a router of `tenant-1`.
    pub(crate) fn port_for(&mut self, network: &str, number: u32, router: &str) -> String {
        self.port(network, number, &tags(router))
    }

    /// A port for a router of `tenant-1`, plugged into a server.
    pub(crate) fn port_in(&mut self, network: &str, number: u32, router: &str, server: &str) -> String {
        let id = self.port_for(network, number, router);
        self.occupy(&json!(id), server);
        id
    }

    /// The row of a port.
    pub(crate) fn port_row(&mut self, id: &str) -> &mut Value {
        let row = self.ports.iter_mut().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("no port {id}"))
    }

    /// A router of neutron.
    pub(crate) fn router(&mut self, name: &str, tags: &[&str]) {
        let id = format!("00000000-0000-4000-a000-{:012}", self.next());
        self.routers.push(json!({"id": id, "name": name, "tags": tags}));
    }

    pub(super) fn neutron(&mut self, request: &HttpRequest) -> Reply {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        match (request.method.as_str(), &path[..]) {
            ("GET", ["v2.0", "ports"]) => {
                let rows = self.matching(&self.ports, request, &["network_id", "mac_address", "device_id"]);
                self.paged("ports", rows, request)
            }
            ("GET", ["v2.0", "routers"]) => {
                let rows = self.matching(&self.routers, request, &["name"]);
                self.paged("routers", rows, request)
            }
            ("PUT", ["v2.0", "ports", id]) => match self.ports.iter_mut().find(|row| row["id"] == *id) {
                None => error(404, "PortNotFound", &format!("Port {id} could not be found.")),
                Some(row) => {
                    for (field, value) in body(request)["port"].as_object().expect("fields") {
                        row[field] = value.clone();
                    }
                    Reply::json(200, json!({"port": row}))
                }
            },
            other => panic!("neutron has no {other:?}"),
        }
    }

    fn matching(&self, rows: &[Value], request: &HttpRequest, filters: &[&str]) -> Vec<Value> {
        let is_it = |row: &&Value| {
            let mut wrong = filters.iter().filter(|name| {
                let wanted = query(request, name);
                wanted.is_some_and(|wanted| row[**name] != wanted)
            });
            self.ignores_filters || wrong.next().is_none()
        };
        rows.iter().filter(is_it).cloned().collect()
    }
}
