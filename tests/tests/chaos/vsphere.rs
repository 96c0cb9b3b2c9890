//! A vCenter by the simulator of govmomi.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use polity_core::contract::Kind;
use polity_tests::skip::Skip;
use polity_tests::vcsim::Vcsim;
use serde_json::Value;

use super::Stage;
use super::proxy::{Answer, Dialect, Does, Proxy, refusal};
use crate::vcenter;

pub(super) struct VCenter {
    vcsim: Vcsim,
    /// Another vCenter.
    other: Vcsim,
    proxy: Proxy,
}

impl VCenter {
    pub(super) fn start() -> Result<Self, Skip> {
        let vcsim = Vcsim::start(&["-clone", "200ms", "-beside", "web"])?;
        let other = Vcsim::start(&["-instance", "another"])?;
        let soap = Soap {
            other: other.address().to_owned(),
        };
        let proxy = Proxy::start(soap, &[vcsim.address()]);
        Ok(VCenter { vcsim, other, proxy })
    }
}

impl Stage for VCenter {
    const EXAMPLE: &'static str = "vsphere-machines";
    const SECRETS: &'static [&'static str] = &[vcenter::SECRET, vcenter::TOKEN];

    fn kind() -> Kind {
        vcenter::kind()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replaced(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "127.0.0.1:8989",
                self.proxy.address(self.vcsim.address()).to_owned(),
            ),
            ("requeuePeriod: 5s", "requeuePeriod: 500ms".to_owned()),
        ]
    }

    fn count(&self) -> usize {
        self.vcsim.vms().len()
    }

    fn count_elsewhere(&self) -> usize {
        self.other.vms().len()
    }

    fn is_ready(machine: &Value) -> bool {
        vcenter::is_running(machine)
    }
}

/// SOAP as a vCenter speaks it.
struct Soap {
    /// The address of another vCenter.
    other: String,
}

impl Dialect for Soap {
    fn kind(&self, request: &Parts, body: &str) -> (String, Does) {
        let inside = body
            .split_once("Body>")
            .and_then(|(_, inside)| inside.split_once('<'));
        let call = inside.map_or(request.method.as_str(), |(_, call)| call);
        let end = call.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let call = &call[..end.unwrap_or(call.len())];
        let does = match call {
            "Login" | "Logout" | "RetrieveServiceContent" => Does::LogIn,
            "CloneVM_Task" => Does::Create,
            "FindByInventoryPath" | "FindByUuid" | "FindAllByUuid" | "FindChild" => Does::Read,
            read if read.starts_with("Retrieve") || read.starts_with("Continue") => Does::Read,
            _ => Does::Change,
        };
        (call.to_owned(), does)
    }

    fn move_away(&self, _: &mut Parts, _: &mut Bytes) -> Option<String> {
        Some(self.other.clone())
    }

    fn end_session(&self, request: &mut Parts) -> Option<Answer> {
        let gone = HeaderValue::from_static("vmware_soap_session=gone");
        request.headers.insert(header::COOKIE, gone);
        None
    }

    fn throttled(&self) -> Answer {
        let mut busy = refusal(StatusCode::SERVICE_UNAVAILABLE, "busy");
        busy.headers_mut().insert(header::RETRY_AFTER, 1.into());
        busy
    }
}
