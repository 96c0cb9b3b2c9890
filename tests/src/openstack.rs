//! Keystone, Placement, Glance, Neutron and Nova as OpenStack publishes them, with Nova's fake hypervisor.
//!
//! `tests/assets/openstack` says what runs and what it has. One stack takes 0.8 GB of memory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::skip::{NO_PYTHON, Skip};

/// The program that runs it.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/openstack/run");
/// The password of all users.
pub const PASSWORD: &str = "trombone-on-tuesday";
/// How every token of Keystone begins.
pub const TOKEN_BEGINS: &str = "gAAAA";

/// The processes of one OpenStack, ended when dropped.
pub struct OpenStack {
    child: Child,
    addresses: Value,
    /// A token that sees all projects.
    admin: String,
    /// A token of the project of the examples.
    demo: String,
    _only: MutexGuard<'static, ()>,
}

/// Held by the one that runs: two take more memory and time than a small machine has.
static ONE: Mutex<()> = Mutex::new(());

/// A service.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// Nova
    Compute,
    /// Neutron
    Network,
}

impl OpenStack {
    /// Starts one. Where it is not here yet, pip brings it, once, in minutes.
    ///
    /// # Errors
    /// [`Skip`] where Python is missing.
    ///
    /// # Panics
    /// It does not start; instead of the skip when `POLITY_NO_SKIP=1`.
    pub fn start() -> Result<Self, Skip> {
        let only = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new(PROGRAM)
            .arg("--end-with-stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash runs it");
        let mut line = String::new();
        let printed = child.stdout.take().expect("it is piped");
        BufReader::new(printed).read_line(&mut line).expect("text");
        if line.is_empty() {
            let ended = child.wait().expect("it is a child");
            assert_eq!(
                ended.code(),
                Some(NO_PYTHON),
                "OpenStack does not start: see what it printed above"
            );
            return Err(Skip::because(
                "Python 3.11 with venv and pip, which run OpenStack, is not here",
            ));
        }
        let mut stack = OpenStack {
            child,
            addresses: serde_json::from_str(&line).expect("the addresses"),
            admin: String::new(),
            demo: String::new(),
            _only: only,
        };
        stack.admin = stack.token("admin");
        stack.demo = stack.token("demo");
        Ok(stack)
    }

    /// The address of Keystone.
    pub fn identity(&self) -> &str {
        self.addresses["identity"].as_str().expect("an address")
    }

    /// Where its services listen, `127.0.0.1:PORT` each.
    pub fn hosts(&self) -> Vec<&str> {
        let addresses = self.addresses.as_object().into_iter().flatten();
        let urls = addresses.filter_map(|(_, url)| url.as_str()?.strip_prefix("http://"));
        urls.filter_map(|url| url.split('/').next()).collect()
    }

    fn token(&self, user: &str) -> String {
        let domain = json!({"id": "default"});
        let user_of_domain = json!({"name": user, "password": PASSWORD, "domain": domain});
        let login = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user_of_domain}},
            "scope": {"project": {"name": user, "domain": domain}},
        }});
        let url = format!("{}/auth/tokens", self.identity());
        let (head, _) = exchange("POST", &url, "", Some(&login));
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let token = lines.find(|(name, _)| name.eq_ignore_ascii_case("x-subject-token"));
        token.expect("a token").1.to_owned()
    }

    /// The response of a service to a user of the project `demo`: its status and its body.
    pub fn send(&self, service: Service, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.send_as(&self.demo, service, method, path, body)
    }

    fn send_as(
        &self,
        token: &str,
        service: Service,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let (name, version) = match service {
            Service::Compute => ("compute", ""),
            Service::Network => ("network", "/v2.0"),
        };
        let base = self.addresses[name].as_str().expect("an address");
        let (head, body) = exchange(method, &format!("{base}{version}{path}"), token, body);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body)
    }

    /// The servers of all projects that there are.
    pub fn servers(&self) -> Vec<Value> {
        self.listed(Service::Compute, "servers", "/servers/detail?all_tenants=1")
    }

    /// The servers that there are no more.
    pub fn deleted_servers(&self) -> Vec<Value> {
        let path = "/servers/detail?all_tenants=1&deleted=true";
        self.listed(Service::Compute, "servers", path)
    }

    /// The ports of all projects.
    pub fn ports(&self) -> Vec<Value> {
        self.listed(Service::Network, "ports", "/ports")
    }

    fn listed(&self, service: Service, kind: &str, path: &str) -> Vec<Value> {
        let (status, mut body) = self.send_as(&self.admin, service, "GET", path, None);
        match body[kind].take() {
            Value::Array(rows) => rows,
            _ => panic!("{service:?} answers {status} to {path}: {body}"),
        }
    }

    /// The configuration that the appliance in a server has taken.
    pub fn configuration(&self, server: &str) -> Value {
        let ports = self.ports();
        let of_server = ports.iter().filter(|port| port["device_id"] == server);
        let mut addresses = of_server.filter_map(|port| port["fixed_ips"][0]["ip_address"].as_str());
        let address = addresses
            .find(|address| address.starts_with("127."))
            .expect("it is managed");
        let url = format!("http://{address}:5000/v1/system/config");
        exchange("GET", &url, "", None).1["configuration"].take()
    }
}

impl Drop for OpenStack {
    fn drop(&mut self) {
        // It ends its processes, and then itself.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Head and body of the response to a request.
fn exchange(method: &str, url: &str, token: &str, body: Option<&Value>) -> (String, Value) {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("a URL");
    let body = body.map(Value::to_string).unwrap_or_default();
    let token = match token {
        "" => String::new(),
        token => format!("x-auth-token: {token}\r\n"),
    };
    // Of version 1.0 a response ends with its connection.
    let request = format!(
        "{method} /{path} HTTP/1.0\r\nhost: {host}\r\n{token}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(host).expect("it listens");
    stream.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    (head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}
