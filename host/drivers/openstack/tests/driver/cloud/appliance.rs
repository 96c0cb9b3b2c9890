//! Akanda's appliance.

use polity_driver_sdk::HttpRequest;
use serde_json::{Value, json};

use super::{Cloud, Reply, body, unreachable};

impl Cloud {
    /// An appliance that answers at the address of a port, and shows these interfaces.
    pub(crate) fn appliance_at(&mut self, address: &str, interfaces: Value) {
        let reply = Reply::json(200, json!({"interfaces": interfaces}));
        self.appliances.insert(address.to_owned(), reply);
    }

    pub(super) fn appliance(&mut self, request: &HttpRequest) -> Reply {
        let address = request.address.as_deref().expect("an address");
        let was_told = self.told.contains(&format!("\"{address}\""));
        assert!(was_told, "nobody told the address {address}");
        let Some(reply) = self.appliances.get(address).cloned() else {
            return Reply::lost(unreachable());
        };
        match (request.method.as_str(), request.path.join("/").as_str()) {
            ("GET", "v1/system/interfaces") => reply,
            ("GET", "v1/system/config") => Reply::json(200, json!({"configuration": self.pushed.last()})),
            ("PUT", "v1/system/config") => {
                let config = body(request);
                self.pushed.push(config.clone());
                Reply::json(200, json!({"configuration": config}))
            }
            other => panic!("the appliance has no {other:?}"),
        }
    }
}
