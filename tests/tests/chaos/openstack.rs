//! OpenStack as it is published.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use polity_core::contract::Kind;
use polity_tests::openstack::{OpenStack, PASSWORD, TOKEN_BEGINS};
use polity_tests::skip::Skip;
use serde_json::{Value, json};

use super::Stage;
use super::proxy::{Answer, Dialect, Does, Proxy, refusal};
use crate::openstack;

pub(super) struct Stack {
    cloud: OpenStack,
    proxy: Proxy,
}

impl Stack {
    pub(super) fn start() -> Result<Self, Skip> {
        let cloud = OpenStack::start()?;
        openstack::boot(&cloud, "somebody's", &json!([{"uuid": openstack::OFFICE}]));
        let proxy = Proxy::start(Rest, &cloud.hosts());
        Ok(Stack { cloud, proxy })
    }
}

impl Stage for Stack {
    const EXAMPLE: &'static str = "openstack-routers";
    const SECRETS: &'static [&'static str] = &[PASSWORD, TOKEN_BEGINS];

    fn kind() -> Kind {
        openstack::kind()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replaced(&self) -> Vec<(&'static str, String)> {
        let identity = self.cloud.identity().trim_start_matches("http://");
        let server = identity.split('/').next().unwrap_or_default();
        vec![("127.0.0.1:35357", self.proxy.address(server).to_owned())]
    }

    fn count(&self) -> usize {
        self.cloud.servers().len()
    }

    fn count_elsewhere(&self) -> usize {
        // Those of all projects are counted.
        0
    }

    fn is_ready(router: &Value) -> bool {
        openstack::rests(router)
    }
}

/// The REST APIs of OpenStack.
struct Rest;

impl Dialect for Rest {
    fn kind(&self, request: &Parts, _: &str) -> (String, Does) {
        let segment = |segment: &str| {
            if segment.len() > 30 {
                "*".to_owned()
            } else {
                segment.to_owned()
            }
        };
        let path: Vec<String> = request.uri.path().split('/').map(segment).collect();
        let kind = format!("{} {}", request.method, path.join("/"));
        let does = match path.last().map(String::as_str) {
            Some("tokens") => Does::LogIn,
            _ if request.method == Method::GET => Does::Read,
            Some("servers") => Does::Create,
            _ => Does::Change,
        };
        (kind, does)
    }

    fn move_away(&self, request: &mut Parts, body: &mut Bytes) -> Option<String> {
        if request.uri.path().ends_with("/tokens") {
            let login = String::from_utf8_lossy(body).replace("\"demo\"", "\"admin\"");
            *body = login.into();
        }
        None
    }

    fn end_session(&self, request: &mut Parts) -> Option<Answer> {
        request
            .headers
            .insert("x-auth-token", HeaderValue::from_static("gone"));
        None
    }

    fn throttled(&self) -> Answer {
        let mut busy = refusal(StatusCode::TOO_MANY_REQUESTS, "busy");
        busy.headers_mut().insert(header::RETRY_AFTER, 1.into());
        busy
    }
}
