//! Nova.

use polity_driver_sdk::HttpRequest;
use serde_json::{Value, json};

use super::{Cloud, Reply, below, body, query};

/// A refusal of nova.
pub(crate) fn fault(status: u16, name: &str, message: &str) -> Reply {
    Reply::json(status, json!({name: {"code": status, "message": message}}))
        .header("x-openstack-request-id", "req-77")
}

impl Cloud {
    /// A server of `owner-1` that works.
    pub(crate) fn server(&mut self, name: &str) -> String {
        self.server_of(name, "owner-1", "tenant-1", "key-1")
    }

    /// A server with these marks.
    pub(crate) fn server_of(&mut self, name: &str, owner: &str, tenant: &str, key: &str) -> String {
        let marks = json!({"polity-owner": owner, "polity-tenant": tenant, "polity-key": key});
        self.server_with(name, marks)
    }

    /// A server with this metadata.
    pub(crate) fn server_with(&mut self, name: &str, metadata: Value) -> String {
        let id = format!("00000000-0000-4000-8000-{:012}", self.next());
        self.servers.push(json!({
            "id": id, "name": name, "status": "ACTIVE", "created": self.created, "metadata": metadata,
            "OS-EXT-STS:task_state": null, "OS-EXT-SRV-ATTR:user_data": "c2VjcmV0", "flavor": {"ram": 512},
        }));
        id
    }

    /// The row of a server.
    pub(crate) fn row(&mut self, id: &str) -> &mut Value {
        let row = self.servers.iter_mut().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("no server {id}"))
    }

    /// A server cannot be built. Nova shows then why: `fault` of the API reference, "only displayed when the server status is
    /// ERROR or DELETED and a fault occurred". The message is that of nova's conductor (`exception.MaxRetriesExceeded`,
    /// `NoValidHost`).
    pub(crate) fn fails(&mut self, id: &str) -> &'static str {
        let message = "No valid host was found. There are not enough hosts available.";
        let row = self.row(id);
        row["status"] = json!("ERROR");
        row["fault"] = json!({"code": 500, "created": "2026-09-21T14:00:00Z", "message": message});
        message
    }

    /// The removal of a server ends: nova releases the ports that the boot named, and removes the port that it created itself.
    pub(crate) fn gone(&mut self, id: &str) {
        self.servers.retain(|row| row["id"] != id);
        self.ports
            .retain(|port| port["device_id"] != id || port["nova"] != true);
        for port in self.ports.iter_mut().filter(|port| port["device_id"] == id) {
            (port["device_id"], port["device_owner"]) = (json!(""), json!(""));
        }
    }

    pub(super) fn nova(&mut self, request: &HttpRequest) -> Reply {
        let path: Vec<&str> = below(request).iter().map(String::as_str).collect();
        match (request.method.as_str(), &path[..]) {
            ("GET", ["servers"]) => self.list(request, &["id", "name", "links"]),
            ("GET", ["servers", "detail"]) => self.list(request, &[]),
            ("POST", ["servers"]) => self.boot(&body(request)["server"]),
            (_, ["servers", id, ..]) if !self.servers.iter().any(|row| row["id"] == *id) => {
                fault(404, "itemNotFound", &format!("Instance {id} could not be found."))
            }
            ("GET", ["servers", id]) => {
                let row = self.row(id).clone();
                Reply::json(200, json!({"server": self.as_seen(row)}))
            }
            ("DELETE", ["servers", id]) => {
                self.row(id)["OS-EXT-STS:task_state"] = json!("deleting");
                Reply::new(204, "")
            }
            ("POST", ["servers", id, "os-interface"]) => {
                let port = body(request)["interfaceAttachment"]["port_id"].clone();
                self.plug_in(id, &port)
            }
            ("DELETE", ["servers", id, "os-interface", port]) => self.plug_out(id, port),
            other => panic!("nova has no {other:?}"),
        }
    }

    fn list(&mut self, request: &HttpRequest, fields: &[&str]) -> Reply {
        // As nova (`_is_cell_down_supported`, `get_all`): only a list without filter and paging shows servers of cells that are
        // down. They come first, as far as the page has room for them.
        let is_whole = request.query.is_empty();
        let name = query(request, "name").map(unquoted);
        assert!(is_whole || name.is_some(), "the whole list is read on");
        let finds = |row: &&Value| match &name {
            Some(name) if !self.ignores_filters => {
                // Like a database that ignores case.
                row["name"]
                    .as_str()
                    .is_some_and(|known| known.eq_ignore_ascii_case(name))
            }
            _ => true,
        };
        let is_shown = |row: &&Value| is_whole || !self.is_down(row);
        let mut rows: Vec<&Value> = self.servers.iter().filter(finds).filter(is_shown).collect();
        let up = rows.iter().filter(|row| !self.is_down(row)).count();
        if up >= self.page {
            rows.retain(|row| !self.is_down(row));
        }
        rows.sort_by_key(|row| !self.is_down(row));
        let rows = rows.into_iter().map(|row| {
            let mut row = self.as_seen(row.clone());
            if let Value::Object(row) = &mut row {
                let is_down = row.get("status").is_some_and(|status| status == "UNKNOWN");
                row.retain(|field, _| is_down || fields.is_empty() || fields.contains(&field.as_str()));
            }
            row
        });
        let rows = rows.collect();
        self.paged("servers", rows, request)
    }

    fn is_down(&self, row: &Value) -> bool {
        self.down.iter().any(|id| row["id"] == *id)
    }

    /// Of a server whose cell is down, nova knows little.
    fn as_seen(&self, row: Value) -> Value {
        if self.is_down(&row) {
            json!({"id": row["id"], "status": "UNKNOWN", "created": row["created"]})
        } else {
            row
        }
    }

    fn boot(&mut self, wanted: &Value) -> Reply {
        let name = wanted["name"].as_str().expect("a name");
        let networks = wanted["networks"].as_array().expect("networks");
        let ports: Vec<Value> = networks
            .iter()
            .filter_map(|network| network.get("port").cloned())
            .collect();
        for port in &ports {
            let known = self
                .ports
                .iter()
                .find(|known| known["id"] == *port)
                .expect("a port");
            if known["device_id"] != "" {
                return fault(
                    409,
                    "conflictingRequest",
                    &format!("Port {port} is still in use."),
                );
            }
        }
        let id = self.server_with(name, wanted["metadata"].clone());
        let created = self.row(&id);
        created["status"] = json!("BUILD");
        created["imageRef"] = wanted["imageRef"].clone();
        created["flavorRef"] = wanted["flavorRef"].clone();
        for port in &ports {
            self.occupy(port, &id);
        }
        for network in networks.iter().filter_map(|network| network["uuid"].as_str()) {
            let port = self.port(network, 90, &[]);
            self.occupy(&json!(port), &id);
            self.port_row(&port)["nova"] = json!(true);
        }
        Reply::json(
            202,
            json!({"server": {"id": id, "adminPass": "secret", "links": []}}),
        )
    }

    /// Plugs a port into a server.
    pub(crate) fn occupy(&mut self, port: &Value, server: &str) {
        let port = self.port_row(port.as_str().expect("an id"));
        (port["device_id"], port["device_owner"]) = (json!(server), json!("compute:nova"));
    }

    fn plug_in(&mut self, id: &str, port: &Value) -> Reply {
        if self.row(id)["status"] != "ACTIVE" {
            let message = format!("Cannot 'attach_interface' instance {id} while it is in vm_state building");
            return fault(409, "conflictingRequest", &message);
        }
        let Some(known) = self.ports.iter().find(|known| known["id"] == *port) else {
            return fault(
                404,
                "itemNotFound",
                &format!("Port id {port} could not be found."),
            );
        };
        if known["device_id"] != "" {
            return fault(
                409,
                "conflictingRequest",
                &format!("Port {port} is still in use."),
            );
        }
        self.occupy(port, id);
        Reply::json(200, json!({"interfaceAttachment": {"port_id": port}}))
    }

    fn plug_out(&mut self, id: &str, port: &str) -> Reply {
        let mut ports = self.ports.iter_mut();
        match ports.find(|known| known["id"] == port && known["device_id"] == id) {
            None => fault(
                404,
                "itemNotFound",
                &format!("Port id {port} could not be found."),
            ),
            Some(port) => {
                (port["device_id"], port["device_owner"]) = (json!(""), json!(""));
                Reply::new(202, "")
            }
        }
    }
}

/// The name that a regular expression matches. Every character with a special meaning must be quoted.
fn unquoted(expression: &str) -> String {
    let inside = expression
        .strip_prefix('^')
        .and_then(|rest| rest.strip_suffix('$'));
    let mut characters = inside.expect("the expression is of the whole name").chars();
    let mut name = String::new();
    while let Some(character) = characters.next() {
        if character == '\\' {
            let quoted = characters.next().expect("a quoted character");
            assert!(!quoted.is_alphanumeric(), "\\{quoted} means something else");
            name.push(quoted);
        } else {
            assert!(!".^$*+?()[]{}|".contains(character), "{character} is not quoted");
            name.push(character);
        }
    }
    name
}
