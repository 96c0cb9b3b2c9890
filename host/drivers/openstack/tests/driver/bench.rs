//! An object whose operations a test performs in front of a small OpenStack.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use polity_clouds::catalogue;
use polity_driver_openstack::OpenStack;
use polity_driver_sdk::test::{Play, Reply};
use polity_driver_sdk::{Code, Effect, Entry, Failure, Finding, HttpRequest};
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Value, json};

use crate::cloud::below;
use crate::cloud::neutron::mac;
use crate::cloud::{Cloud, MANAGEMENT};

type Server = Box<dyn FnMut(&HttpRequest) -> Reply>;

/// `2026-09-21T14:13:20Z`, half a minute after the creations of the cloud.
pub(crate) const NOW: u64 = 1_790_000_000_000;

/// An object in front of a cloud.
pub(crate) struct Bench {
    cloud: Rc<RefCell<Cloud>>,
    pub(crate) play: Play<Server>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let cloud = Rc::new(RefCell::new(Cloud::new()));
        let shared = Rc::clone(&cloud);
        let server: Server = Box::new(move |request| shared.borrow_mut().reply(request));
        let mut play = Play::new(server);
        play.config = json!({"managementNetwork": MANAGEMENT});
        play.now = NOW;
        Bench { cloud, play }
    }

    /// The cloud.
    pub(crate) fn cloud(&self) -> RefMut<'_, Cloud> {
        self.cloud.borrow_mut()
    }

    /// Performs an operation. Arguments and answer must match the catalogue.
    pub(crate) fn call(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        let services = catalogue::router::operations(Duration::from_secs(90));
        let mut operations = services.into_iter().chain(catalogue::task::operations());
        let (_, known) = operations
            .find(|(name, _)| *name == operation)
            .expect("an operation");
        assert_valid(&known.arguments, &arguments, operation);
        let answer = self.perform(operation, arguments);
        if let Ok(answer) = &answer {
            assert_valid(&known.answer, answer, operation);
        }
        answer
    }

    /// Performs an operation with arguments that the host would refuse.
    pub(crate) fn perform(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        self.cloud().begin();
        self.play.sent.clear();
        self.play.perform::<OpenStack>(operation, arguments)
    }

    /// The failure of an operation.
    pub(crate) fn failure(&mut self, operation: &str, arguments: Value) -> Failure {
        match self.call(operation, arguments) {
            Ok(answer) => panic!("{operation} answers {answer}"),
            Err(failure) => failure,
        }
    }

    /// The code of the failure of an operation.
    pub(crate) fn code(&mut self, operation: &str, arguments: Value) -> Code {
        self.failure(operation, arguments).code
    }

    /// Resolves a boot of a router of this name, whose entry was written half a minute ago.
    pub(crate) fn resolve(&mut self, name: &str) -> Finding {
        let entry = Entry {
            since: NOW - 30_000,
            ..self.play.entry(name)
        };
        self.cloud().begin();
        self.play.sent.clear();
        self.play.resolve::<OpenStack>("router.boot", entry)
    }

    /// The method and path of each change and create of the last operation.
    pub(crate) fn changes(&self) -> Vec<String> {
        let line = |request: &HttpRequest| format!("{} {}", request.method, below(request).join("/"));
        self.play.changes().map(line).collect()
    }

    /// The request of the last operation that creates.
    pub(crate) fn created(&self) -> &HttpRequest {
        let mut sent = self.play.sent.iter();
        sent.find(|request| request.effect == Effect::Create)
            .expect("a create")
    }
}

fn assert_valid(schema: &Value, value: &Value, operation: &str) {
    let schema = compile(Dialect::Json, "", schema).expect("a schema");
    assert_eq!(schema.check(value), Ok(()), "{operation}: {value}");
}

/// The code of a finding `CannotTell`.
pub(crate) fn untold(finding: Finding) -> Code {
    match finding {
        Finding::CannotTell(failure) => failure.code,
        other => panic!("resolved as {other:?}"),
    }
}

/// A port of `net-N`.
pub(crate) fn port(number: u32) -> Value {
    json!({"network": format!("net-{number}"), "mac": mac(number)})
}

/// A port of `net-N`, and a server.
pub(crate) fn plug(id: &str, number: u32) -> Value {
    json!({"id": id, "network": format!("net-{number}"), "mac": mac(number)})
}

/// The arguments of a boot with ports of these numbers.
pub(crate) fn boot(name: &str, ports: &[u32]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|number| port(*number)).collect();
    json!({"name": name, "image": "image-1", "flavor": "m1.small", "ports": ports})
}

/// The arguments of an operation on a server.
pub(crate) fn by_id(id: &str) -> Value {
    json!({"id": id})
}
