//! Objects whose operations are performed in front of a server.

use std::rc::Rc;

use polity_driver_aws::Aws;
use polity_driver_sdk::test::{Play, Reply};
use polity_driver_sdk::{Failure, Finding, HttpRequest};
use serde_json::{Value, json};

use super::{Fields, IMAGE, Server};

/// A function that answers requests.
pub type Answers = Box<dyn FnMut(&HttpRequest) -> Reply>;

/// An object whose operations are performed against the server.
pub struct Object {
    pub play: Play<Answers>,
}

/// The object `owner-1` of `tenant-1`, logged in to the region of the server.
pub fn object(server: &Server) -> Object {
    let server = Rc::clone(server);
    let answers: Answers = Box::new(move |request| server.borrow_mut().answer(request));
    let mut play = Play::new(answers);
    play.session = json!({"region": "eu-central-1", "account": "111122223333"});
    let secrets = [
        ("userData", "join <<MACHINE_NAME>> by <<BOOTSTRAP_TOKEN>>!"),
        ("bootstrapToken", "abc.def"),
    ];
    play.secrets = secrets
        .map(|(path, value)| (path.to_owned(), value.to_owned()))
        .into();
    Object { play }
}

/// The smallest specification.
pub fn small() -> Value {
    json!({"ami": IMAGE, "machineType": "m5.large", "region": "eu-central-1"})
}

/// The arguments that create a machine of this name.
pub fn named(name: &str) -> Value {
    json!({"name": name, "providerSpec": small()})
}

impl Object {
    pub fn perform(&mut self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        self.play.perform::<Aws>(operation, arguments)
    }

    /// Creates a machine.
    pub fn create(&mut self, name: &str) -> Value {
        self.perform("machine.create", named(name))
            .expect("it is created")
    }

    pub fn resolve(&mut self, name: &str) -> Finding {
        let entry = self.play.entry(name);
        self.play.resolve::<Aws>("machine.create", entry)
    }

    /// The fields of the requests that were sent so far, with the secrets in them.
    pub fn sent(&self) -> Vec<Fields> {
        let forms = self
            .play
            .sent
            .iter()
            .map(|request| Fields::read(&self.play.body(request)));
        forms.collect()
    }

    /// The actions of the requests that were sent so far.
    pub fn actions(&self) -> Vec<String> {
        self.sent().iter().map(|form| form["Action"].clone()).collect()
    }

    /// The number of requests that changed something.
    pub fn changes(&self) -> usize {
        self.play.changes().count()
    }
}
