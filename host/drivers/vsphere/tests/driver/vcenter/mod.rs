//! A small vCenter with a state, which answers SOAP.

mod changes;
mod properties;
pub(crate) mod world;
pub(crate) mod xml;

use std::collections::BTreeMap;

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{HttpRequest, Piece, tree};
use serde_json::Value;

pub(crate) use world::{OWN_VM, Task, VCenter, Vm, clone_task, options, own_vm};

/// How the server shows that a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// As a SOAP fault.
    Fault,
    /// As a success in which every property is missing.
    Missing,
}

/// A request as it arrives.
pub(crate) struct Call {
    /// The name of the method.
    pub(crate) method: String,
    /// Its element.
    pub(crate) element: Value,
    /// The id of the object of the method.
    pub(crate) this: String,
    /// The id of the operation.
    pub(crate) operation_id: String,
}

impl Call {
    /// Reads a request. Values that the host would put in are not visible here.
    fn read(request: &HttpRequest) -> Self {
        assert_eq!(
            (&*request.method, &request.path[..]),
            ("POST", &["sdk".to_owned()][..])
        );
        let text: String = request
            .body
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Sealed(_) => "sealed",
            })
            .collect();
        let seen = polity_body::read(text.as_bytes(), &["*"]);
        assert_eq!(seen.text, None, "a request is XML: {text}");
        let body = tree::first(&seen.kept, "Envelope/Body").expect("a request has a body");
        let (method, element) = body
            .as_object()
            .and_then(|body| body.iter().next())
            .expect("a method");
        Call {
            method: method.clone(),
            this: tree::text(&element[0], "_this").to_owned(),
            operation_id: tree::text(&seen.kept, "Envelope/Header/operationID").to_owned(),
            element: element[0].clone(),
        }
    }

    /// A text in the call.
    pub(crate) fn text(&self, path: &str) -> &str {
        tree::text(&self.element, path)
    }
}

impl VCenter {
    /// Answers a request.
    pub(crate) fn answer(&mut self, request: &HttpRequest) -> Reply {
        let call = Call::read(request);
        self.requests += 1;
        if let Some(reply) = self.instead.get(&call.method) {
            return reply.clone();
        }
        let has_ended = self.ends_at.is_some_and(|nth| self.requests >= nth);
        // This read needs no session.
        if has_ended && call.method != "RetrieveServiceContent" {
            let is_read = call.method == "RetrievePropertiesEx";
            return match self.ended {
                Ended::Missing if is_read => self.retrieve(&call, true),
                _ => refused("NotAuthenticated", ""),
            };
        }
        match call.method.as_str() {
            "RetrieveServiceContent" => self.service_content(&call),
            "FindByInventoryPath" => self.find_by_path(&call),
            "FindAllByUuid" => self.find_all_by_uuid(&call),
            "RetrievePropertiesEx" => self.retrieve(&call, false),
            "ContinueRetrievePropertiesEx" => self.next_page(&call),
            _ => self.change(&call),
        }
    }

    fn service_content(&self, call: &Call) -> Reply {
        assert_eq!(call.this, "ServiceInstance");
        let about = format!(
            "<about><name>VMware vCenter Server</name><apiVersion>{}</apiVersion></about>",
            self.api_version
        );
        let content = [
            xml::reference("rootFolder", ("Folder", "group-d1")),
            xml::reference("propertyCollector", ("PropertyCollector", "pc-1")),
            about,
            xml::reference("taskManager", ("TaskManager", "tm-1")),
            xml::reference("searchIndex", ("SearchIndex", "si-1")),
        ];
        found(call, &format!("<returnval>{}</returnval>", content.concat()))
    }

    fn find_by_path(&self, call: &Call) -> Reply {
        assert_eq!(call.this, "si-1");
        let path = call.text("inventoryPath");
        assert!(!path.starts_with('/') && !path.ends_with('/'), "{path}");
        let vm = self
            .vms
            .iter()
            .find(|vm| format!("{}/{}", vm.folder, vm.name) == path);
        let at = vm.map(|vm| ("VirtualMachine", vm.id.as_str()));
        let at = at.or_else(|| {
            self.inventory
                .get(path)
                .map(|(kind, id)| (kind.as_str(), id.as_str()))
        });
        found(
            call,
            &at.map(|at| xml::reference("returnval", at)).unwrap_or_default(),
        )
    }

    fn find_all_by_uuid(&self, call: &Call) -> Reply {
        assert_eq!(
            [
                call.this.as_str(),
                call.text("vmSearch"),
                call.text("instanceUuid")
            ],
            ["si-1", "true", "true"]
        );
        let hits = self
            .vms
            .iter()
            .filter(|vm| vm.is_configured && vm.instance_uuid == call.text("uuid"));
        let hits: String = hits
            .map(|vm| xml::reference("returnval", ("VirtualMachine", &vm.id)))
            .collect();
        found(call, &hits)
    }
}

/// A success.
pub(crate) fn found(call: &Call, inside: &str) -> Reply {
    Reply::new(200, xml::response(&call.method, inside))
}

/// A refusal.
pub(crate) fn refused(name: &str, inside: &str) -> Reply {
    Reply::new(500, xml::fault(name, inside))
}

/// A map of texts.
pub(crate) type Texts = BTreeMap<String, String>;
